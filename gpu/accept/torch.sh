# PyTorch jobs that know nothing of Paceline: that they are observed, compute the same, and take no longer.

# Two ranks on one GPU, which NCCL refuses unless it takes them for two hosts; then they talk through the loopback
# interface, by more than one thread: NAME OPTIONS... -- COMMAND
job() {
    name=$1
    shift
    NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=2 \
        timeout 120 paceline run -n 2 --data "$work/$name" "$@" > "$work/$name.txt" 2>&1
    status=$?
    {
        echo "== $name"
        cat "$work/$name.txt"
        echo "== exit $status"
    } >> "$raw"
}
python() { echo "NCCL_HOSTID=\$RANK exec python3 $here/accept/$*"; }
seconds() { sed -n 's/.*step seconds: \([0-9.]*\).*/\1/p' "$work/$1.txt"; }
loss() { sed -n 's/.*loss: \([0-9.-]*\).*/\1/p' "$work/$1.txt"; }

observed() {
    report=$results/$today-accept-torch.json
    job observed --attach -- sh -c "$(python ddp.py)"
    paceline report latest --data "$work/observed" --json > "$report" 2>> "$raw"
    judge "an unchanged DDP job is observed" observed.py "$report"
    if [ "$(loss plain)" = "$(loss observed)" ]; then word=PASS; else word=FAIL; fi
    say $word "its result is the same" "loss $(loss plain) without, $(loss observed) with"

    job profiled --attach -- sh -c "$(python ddp.py --profile)"
    kernels=$(sed -n 's/.*profiled kernels: \([0-9]*\).*/\1/p' "$work/profiled.txt" | head -1)
    if [ "${kernels:-0}" -gt 0 ]; then word=PASS; else word=FAIL; fi
    say $word "torch.profiler works beside it" "${kernels:-0} kernels"

    # Four micro-batches, there and back: what the stages send each other, and one norm.
    report=$results/$today-accept-pipeline.json
    job pipeline --attach -- sh -c "$(python pipeline.py)"
    paceline report latest --data "$work/pipeline" --json > "$report" 2>> "$raw"
    judge "sends and receives of two pipeline stages" messages.py "$report"
}

# Of a run that told none, a word that is no time.
seconds_or_none() {
    found=$(seconds "$1")
    echo "${found:-none}"
}

# Each attached job between two that are not: those differ by noise alone.
overhead() {
    job off -- sh -c "$(python ddp.py)"
    all=$(seconds_or_none off)
    for number in 1 2 3; do
        job "on$number" --attach -- sh -c "$(python ddp.py)"
        job "off$number" -- sh -c "$(python ddp.py)"
        all="$all $(seconds_or_none "on$number") $(seconds_or_none "off$number")"
    done
    # shellcheck disable=SC2086 # these are words
    judge "overhead of being attached" overhead.py $all
}

raw=$results/$today-accept-torch.txt
: > "$raw"
if has_torch; then
    job plain -- sh -c "$(python ddp.py)"
    if [ "$status" = 124 ]; then
        say FAIL "PyTorch DDP" "two ranks did not come to their end in 120 s, without Paceline; see $raw"
    elif [ -z "$(seconds plain)" ]; then
        say SKIP "PyTorch DDP" "two ranks do not run on this GPU without Paceline either; see $raw"
    else
        observed
        overhead
    fi
else
    say SKIP "PyTorch" "no python3 with torch that sees the GPU"
fi
