# Checks that the example job learns the same on a GPU, and that events and CUPTI give the same overlap.

# Trains from the same seed over the same number of samples: NAME RANKS OPTIONS...
trained() {
    name=$1 ranks=$2
    shift 2
    {
        echo "== $name"
        timeout 120 paceline run -n "$ranks" --data "$work/$name" -- "$work/char_lm" --steps 200 \
            --batch 8 --strong --loss-out "$work/$name.csv" "$@" 2>&1
        echo "== exit $?"
    } >> "$raw"
}

# Trains a larger model on one rank, for its throughput: PRECISION PEAK. The peak rates are those of an H100 or H200
# with SXM by its data sheet: FP32 without tensor cores, and dense BF16.
throughput() {
    precision=$1 peak=$2
    timeout 120 paceline run -n 1 --data "$work/throughput-$precision" -- "$work/char_lm" --steps 60 --log-every 10 \
        --dim 1024 --layers 8 --heads 16 --batch 32 --ctx 256 --bucket-cap 25 --device cuda --precision "$precision" \
        > "$work/throughput.txt" 2>&1
    { echo "== throughput $precision" && cat "$work/throughput.txt"; } >> "$raw"
    paceline report latest --data "$work/throughput-$precision" --json > "$work/throughput.json" 2>> "$raw"
    judge "throughput of char_lm in $precision" throughput.py "$work/throughput.txt" "$work/throughput.json" 1024 8 256 "$peak"
}

# Trains for as long as it takes to compare two things. First, the samples of the device with those of nvidia-smi.
# Second, the overlap by events, which count all of forward and backward as busy, with that by CUPTI, which records every
# kernel. The model is so wide that most kernels take longer than their launches. There is one rank, because two on one
# GPU take turns: to each, the device seems busy by events while the other uses it.
overlap() {
    serve "$work/overlap"
    echo "== overlap" >> "$raw"
    timeout 120 paceline run -n 1 --server "$server" --data "$work/overlap" -- "$work/char_lm" --steps 100000 \
        --dim 1024 --layers 8 --heads 16 --batch 32 --ctx 256 --bucket-cap 25 --device cuda --transport staged \
        >> "$raw" 2>&1 &
    job=$!
    python3 "$here/accept/steps.py" "$server" 20 2>> "$raw"
    judge "samples of the device beside nvidia-smi's" samples.py "$server"
    found=$results/$today-accept-char-lm-bursts.json
    # The burst is short enough that there is room for every record.
    timeout 60 paceline burst latest --server "$server" --millis 1500 --json > "$found" 2>> "$raw"
    judge "overlap of char_lm on a staged rank" overlap.py "$found" "$server" 1
    picture char-lm-devices /utilization
    picture char-lm-overview ""
    kill "$job" 2> /dev/null
    wait "$job" 2> /dev/null
    stop_serving
}

# Rank 1 sleeps before each batch. The stacks of the job's own threads name the function.
slow() {
    report=$results/$today-accept-char-lm-slow-input.json
    echo "== slow" >> "$raw"
    timeout 120 paceline run -n 2 --data "$work/slow-lm" -- "$work/char_lm" --steps 300 --batch 8 --device cuda \
        --transport staged --slow-rank 1 --slow-phase input --slow-ms 60 >> "$raw" 2>&1
    paceline report latest --data "$work/slow-lm" --json > "$report" 2>> "$raw"
    judge "char_lm: a rank that waits for its input" culprit.py "$report" 1 input Trouble::input
}

learned() {
    if ! { gunzip -c "$programs/char_lm.gz" > "$work/char_lm" && chmod +x "$work/char_lm"; } 2>> "$raw"; then
        say FAIL "char_lm" "cannot unpack the program: $(tail -1 "$raw")"
        return
    fi
    # The driver compiles the kernels, so it must support the release of the toolkit that built them.
    newest=$(paceline doctor --json 2>> "$raw" | python3 -c '
import json, sys
print(json.load(sys.stdin)["driver"].get("cuda", [0])[0])' 2>> "$raw")
    if [ -z "$newest" ]; then
        say FAIL "char_lm" "'paceline doctor' reports no driver; see $raw"
        return
    fi
    if [ "$newest" = 0 ]; then
        say SKIP "char_lm" "there is no usable GPU; see 'paceline doctor'"
        return
    fi
    if [ "$newest" -lt 13 ]; then
        say SKIP "char_lm" "the program was built with CUDA 13, but the driver supports only CUDA $newest"
        return
    fi
    if ! "$work/char_lm" --version > /dev/null 2>> "$raw"; then
        say SKIP "char_lm" "CUDA's libraries are missing: $(tail -1 "$raw")"
        return
    fi
    trained cpu 2 --device cpu
    trained staged 2 --device cuda --transport staged
    trained nccl 1 --device cuda --transport nccl
    trained bf16 1 --device cuda --precision bf16
    trained fp16 1 --device cuda --precision fp16
    for name in staged:0.02 nccl:0.02 bf16:0.05 fp16:0.05; do
        judge "char_lm ${name%:*}" losses.py "$work/cpu.csv" "$work/${name%:*}.csv" "${name#*:}"
    done
    throughput fp32 67
    throughput bf16 989
    slow
    overlap
}

raw=$results/$today-accept-char-lm.txt
: > "$raw"
if [ -f "$programs/char_lm.gz" ]; then
    learned
else
    say SKIP "char_lm" "the program was not built for GPUs; see 'cargo xtask gpu'"
fi
