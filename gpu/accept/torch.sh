# Checks that unmodified PyTorch jobs are observed and compute the same results.

# The loss of the last step, and a digest of all bits of the parameters after it.
result() { sed -n 's/.*\(loss: .*\)/\1/p' "$work/$1.txt"; }

# Checks that two runs end with the same bits: CHECK RUN RUN.
same() {
    if [ -n "$(result "$2")" ] && [ "$(result "$2")" = "$(result "$3")" ]; then word=PASS; else word=FAIL; fi
    say $word "$1" "$(result "$2") without, $(result "$3") with"
}

observed() {
    report=$results/$today-accept-torch.json
    job observed --attach -- sh -c "$(python ddp.py --warmup 60)"
    paceline report latest --data "$work/observed" --json > "$report" 2>> "$raw"
    judge "an unmodified DDP job is observed" observed.py "$report"
    same "observation does not change its result" plain observed

    # Rank 1 takes 60 ms longer to read a batch, which is longer than a step.
    report=$results/$today-accept-torch-slow-input.json
    job slow --attach -- sh -c "$(python ddp.py --slow-input 60)"
    paceline report latest --data "$work/slow" --json > "$report" 2>> "$raw"
    judge "a rank that waits for its input is named, with the line" culprit.py "$report" 1 input ddp.py

    # Bursts are left to the profiler in a process that has PyTorch.
    mkdir -p "$work/traces"
    PACELINE_BURST_EVERY="20 steps" job profiled --attach -- sh -c "$(python ddp.py --warmup 60 --profile "$work/traces")"
    paceline export latest --data "$work/profiled" --format csv --steps 0..1000000 -o "$work/profiled.csv" >> "$raw" 2>&1
    judge "times of collectives beside those of torch.profiler" stamps.py "$work/profiled.csv" "$work/traces"
    same "torch.profiler works in an observed job" plain profiled
    cp "$work/profiled.csv" "$results/$today-accept-torch-collectives.csv"

    # The stages send each other four micro-batches and their gradients, and reduce one norm.
    report=$results/$today-accept-pipeline.json
    job pipeline --attach -- sh -c "$(python pipeline.py --steps 1500)"
    paceline report latest --data "$work/pipeline" --json > "$report" 2>> "$raw"
    judge "sends and receives of two pipeline stages" messages.py "$report"
}

# Traces the same steps of both ranks on request, by CUPTI through PyTorch's profiler.
traced() {
    job alone -- sh -c "$(python ddp.py --steps 400)"
    serve "$work/traced"
    job traced --attach --server "$server" -- sh -c "$(python ddp.py --steps 400)" &
    running=$!
    python3 "$here/accept/steps.py" "$server" 60 2>> "$raw"
    mkdir -p "$work/requested"
    timeout 60 paceline trace latest --server "$server" --ranks 1,0 --steps 4 --output "$work/requested" >> "$raw" 2>&1
    picture torch-overview ""
    picture torch-devices /utilization
    wait "$running"
    picture torch-code /code
    stop_serving
    judge "kernels in the traces of two ranks" traced.py "$work/requested" 4
    same "a trace does not change the job's result" alone traced
}

# What PyTorch's allocator counts, on a rank with too little memory and on one with enough.
scarce() {
    report=$results/$today-accept-torch-scarce.json
    FOLDER=$work job scarce --attach -- sh -c "$(python scarce.py)"
    paceline report latest --data "$work/scarce" --json > "$report" 2>> "$raw"
    serve "$work/scarce"
    judge "device memory, and a rank that has too little" memory.py "$server" "$work" "$report"
    picture torch-scarce /utilization
    stop_serving
}

raw=$results/$today-accept-torch.txt
: > "$raw"
if has_torch; then
    NCCL_DEBUG=INFO job plain -- sh -c "$(python ddp.py --warmup 60)"
    if [ "$status" = 124 ]; then
        say FAIL "PyTorch DDP" "without Paceline, two ranks did not finish within 120 s; see $raw"
    elif [ -z "$(seconds plain)" ]; then
        say SKIP "PyTorch DDP" "two ranks do not run on this GPU even without Paceline; see $raw"
    else
        observed
        traced
        scarce
    fi
else
    say SKIP "PyTorch" "there is no python3 with a torch that finds the GPU"
fi
