# Checks jobs of frameworks on top of PyTorch. Each has two nodes, as its launcher sees it, which share the GPU.

# Runs a script on two nodes and checks the report: NAME MODULE SCRIPT STEPS PHASE... The module is what python3 must have.
nodes() {
    name=$1 script=$3 steps=$4
    if ! python3 -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$2'))" 2> /dev/null; then
        say SKIP "$name" "python3 has no $2"
        return
    fi
    shift 4
    serve "$work/$name"
    mkdir -p "$work/$name-out"
    jobs=
    for node in 0 1; do
        NCCL_HOSTID=$node NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=2 \
            timeout 120 paceline attach --server "$server" --run-id "$name" -- python3 -m torch.distributed.run \
            --nnodes 2 --node-rank $node --nproc-per-node 1 --master-addr 127.0.0.1 --master-port 29511 \
            "$script" "$steps" "$work/$name-out" > "$work/$name-$node.txt" 2>&1 &
        jobs="$jobs $!"
    done
    # shellcheck disable=SC2086 # these are words
    wait $jobs
    stop_serving
    { echo "== $name" && cat "$work/$name-0.txt" "$work/$name-1.txt"; } >> "$raw"
    report=$results/$today-accept-$name.json
    paceline report "$name" --data "$work/$name" --json > "$report" 2>> "$raw"
    judge "$name" framework.py "$report" "$script" "$steps" "$@"
}

raw=$results/$today-accept-frameworks.txt
: > "$raw"
scripts=$here/../tests/tests/frameworks/jobs
if has_torch; then
    # Compiled code has no observation in it, and the passes of FSDP2 are observed on the host only: there, compute is inferred.
    nodes timm timm "$here/accept/vision.py" 150 backward
    nodes trainer transformers "$scripts/hf_trainer.py" 250 input forward backward optimizer
    nodes accelerate accelerate "$scripts/accelerate_loop.py" 250 input forward backward optimizer
    nodes lightning lightning "$scripts/lightning_fit.py" 250 input forward backward optimizer
    nodes fsdp2 torch "$scripts/fsdp2.py" 250 backward
    nodes own-loop torch "$scripts/own_loop.py" 250 input forward backward optimizer
else
    say SKIP "frameworks" "there is no python3 with a torch that finds the GPU"
fi
