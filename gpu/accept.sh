#!/bin/sh
# Checks on a machine with a GPU, by programs that were built elsewhere: `cargo xtask gpu` puts them into target/gpu.
#
#   gpu/accept.sh [RESULTS]        one line a check; raw results go to the folder RESULTS (default: benches/results)
#
# Exit code 77 where there is no GPU. Needs no Rust; the part about PyTorch needs python3 with torch, and says SKIP without.
set -u
here=$(cd "$(dirname "$0")" && pwd)
programs=${PACELINE_PROGRAMS:-$here/../target/gpu}
results=$(mkdir -p "${1:-$here/../benches/results}" && cd "${1:-$here/../benches/results}" && pwd)
PATH=$programs:$PATH
failed=0

say() {
    echo "$1 $2: $3"
    if [ "$1" = FAIL ]; then failed=1; fi
}

if [ ! -x "$programs/accept" ]; then
    echo "FAIL programs: $programs/accept is not there; build with 'cargo xtask gpu' and bring the folder along"
    exit 1
fi
PACELINE_BENCH_OUT=$results accept
case $? in
0) ;;
77) exit 77 ;;
*) failed=1 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The example job, linked with CUDA's libraries: those that PyTorch brings, or the system's.
char_lm() {
    raw=$results/$(date -u +%Y-%m-%d)-accept-char-lm.txt
    : > "$raw"
    gunzip -c "$programs/char_lm.gz" > "$work/char_lm" && chmod +x "$work/char_lm"
    LD_LIBRARY_PATH=$(python3 -c '
import glob, site
print(":".join(glob.glob(site.getsitepackages()[0] + "/nvidia/*/lib")))' 2> /dev/null):${LD_LIBRARY_PATH:-}
    export LD_LIBRARY_PATH
    if ! "$work/char_lm" --version > /dev/null 2>> "$raw"; then
        say SKIP "char_lm" "CUDA's libraries are not there: $(tail -1 "$raw")"
        return
    fi
    trained cpu 2 --device cpu
    trained staged 2 --device cuda --transport staged
    trained nccl 1 --device cuda --transport nccl
    trained bf16 1 --device cuda --precision bf16
    trained fp16 1 --device cuda --precision fp16
    python3 - "$work" << 'EOP' > "$work/losses.txt" 2>> "$raw"
import csv, sys
def last(name):
    rows = list(csv.DictReader(open(f"{sys.argv[1]}/{name}.csv")))[-20:]
    return sum(float(row["loss"]) for row in rows) / len(rows)
cpu = last("cpu")
for name, most in (("staged", 0.02), ("nccl", 0.02), ("bf16", 0.05), ("fp16", 0.05)):
    found = last(name)
    print("PASS" if abs(found / cpu - 1) <= most else "FAIL", f"char_lm {name}: loss {found:.4f}, {cpu:.4f} on the processor")
EOP
    while read -r word line; do say "$word" "${line%%: *}" "${line#*: }"; done < "$work/losses.txt"
    if [ ! -s "$work/losses.txt" ]; then say FAIL "char_lm" "some run left no losses; see $raw"; fi
    overlap
}

# Trains from the same seed over as many samples.
trained() {
    name=$1 ranks=$2
    shift 2
    {
        echo "== $name"
        timeout 240 paceline run -n "$ranks" --data "$work/$name" -- "$work/char_lm" --steps 200 \
            --loss-out "$work/$name.csv" "$@" 2>&1
        echo "== exit $?"
    } >> "$raw"
}

# By events, which take forward and backward for busy, and by CUPTI, which sees every kernel: of a model so wide that
# kernels take longer than their launches.
overlap() {
    timeout 300 paceline serve --listen 127.0.0.1:0 --data "$work/overlap" > "$work/serve.txt" 2>&1 &
    serving=$!
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        server=$(sed -n 's/.*\(http:[^ ]*\).*/\1/p' "$work/serve.txt" | head -1)
        [ -z "$server" ] || break
        sleep 0.5
    done
    {
        echo "== overlap"
        timeout 240 paceline run -n 2 --server "$server" --data "$work/overlap" -- "$work/char_lm" --steps 100000 \
            --dim 512 --layers 6 --heads 8 --batch 32 --ctx 256 --bucket-cap-mb 8 --device cuda --transport staged 2>&1
    } >> "$raw" &
    job=$!
    sleep 40
    found=$results/$(date -u +%Y-%m-%d)-accept-char-lm-bursts.json
    timeout 60 paceline burst latest --server "$server" --millis 5000 --json > "$found" 2>> "$raw"
    python3 - "$found" "$server" << 'EOP' > "$work/overlap.txt" 2>> "$raw"
import csv, io, json, sys, time, urllib.request
def get(path):
    return urllib.request.urlopen(f"{sys.argv[2]}/api/v1/runs{path}").read().decode()
run = json.loads(get(""))[0]
rows = list(csv.DictReader(io.StringIO(get(f"/{run['run']}/export?format=csv&steps=0..{run['last_step']}"))))
unix = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
hidden = all_of_it = events_hidden = events_all = 0
answers = json.load(open(sys.argv[1]))
for answer in answers:
    burst = answer["burst"]
    hidden += burst["outcome"]["hidden_nanos"]
    all_of_it += burst["outcome"]["collective_nanos"]
    for row in rows:
        start, end = int(row["start_unix_ns"]), int(row["end_unix_ns"])
        if int(row["rank"]) == answer["rank"] and burst["from"] + unix <= start and end <= burst["until"] + unix:
            events_hidden += int(row["hidden_ns"])
            events_all += end - start
exact, by_events = hidden / all_of_it, events_hidden / events_all
word = "PASS" if abs(exact - by_events) <= 0.01 and len(answers) == 2 else "FAIL"
print(word, f"{by_events:.2%} by events, {exact:.2%} by CUPTI's kernels, over 5 s of both ranks")
EOP
    kill "$job" "$serving" 2> /dev/null
    wait "$job" "$serving" 2> /dev/null
    read -r word line < "$work/overlap.txt" || { word=FAIL && line="see $raw"; }
    say "$word" "overlap of char_lm on two staged ranks" "$line"
}

if [ -f "$programs/char_lm.gz" ]; then
    char_lm
else
    say SKIP "char_lm" "it was not built for GPUs: see 'cargo xtask gpu'"
fi

if ! python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
    say SKIP "PyTorch" "no python3 with torch that sees the GPU"
    exit $failed
fi

raw=$results/$(date -u +%Y-%m-%d)-accept-torch.txt
: > "$raw"

# Two ranks on one GPU, which NCCL refuses unless it takes them for two hosts.
job() {
    name=$1
    shift
    {
        echo "== $name"
        NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 timeout 120 paceline run -n 2 --data "$work/$name" "$@" 2>&1
        echo "== exit $?"
    } | tee -a "$raw" > "$work/$name.txt"
}
script="NCCL_HOSTID=\$RANK exec python3 $here/accept_ddp.py"
seconds() { sed -n 's/.*step seconds: \([0-9.]*\).*/\1/p' "$work/$1.txt"; }
loss() { sed -n 's/.*loss: \([0-9.-]*\).*/\1/p' "$work/$1.txt"; }

job plain -- sh -c "$script"
if [ -z "$(seconds plain)" ]; then
    say SKIP "PyTorch DDP" "two ranks do not run on this GPU without Paceline either; see $raw"
    exit $failed
fi
job observed --attach -- sh -c "$script"
paceline report latest --data "$work/observed" --json > "$results/$(date -u +%Y-%m-%d)-accept-torch.json" 2>> "$raw"
python3 - "$results/$(date -u +%Y-%m-%d)-accept-torch.json" << 'EOF' > "$work/found.txt" 2>> "$raw"
import json, sys
report = json.load(open(sys.argv[1]))
print(report["steps"], len(report.get("buckets", [])))
EOF
read -r steps buckets < "$work/found.txt" || { steps=0 && buckets=0; }
if [ "${steps:-0}" -ge 150 ]; then word=PASS; else word=FAIL; fi
say $word "an unchanged DDP job is observed" "$steps steps, $buckets buckets"
if [ "$(loss plain)" = "$(loss observed)" ]; then word=PASS; else word=FAIL; fi
say $word "its result is the same" "loss $(loss plain) without, $(loss observed) with"

job profiled --attach -- sh -c "$script --profile"
kernels=$(sed -n 's/.*profiled kernels: \([0-9]*\).*/\1/p' "$work/profiled.txt" | head -1)
if [ "${kernels:-0}" -gt 0 ]; then word=PASS; else word=FAIL; fi
say $word "torch.profiler works beside it" "${kernels:-0} kernels"

# Four micro-batches, there and back: what the stages send each other, and one norm.
job pipeline --attach -- sh -c "NCCL_HOSTID=\$RANK exec python3 $here/accept_pipeline.py"
paceline report latest --data "$work/pipeline" --json > "$results/$(date -u +%Y-%m-%d)-accept-pipeline.json" 2>> "$raw"
python3 - "$results/$(date -u +%Y-%m-%d)-accept-pipeline.json" << 'EOF' > "$work/messages.txt" 2>> "$raw"
import json, sys
report = json.load(open(sys.argv[1]))
messages = [bucket for bucket in report["buckets"] if bucket["function"] == "send_receive"]
collectives = sum(group["cost"]["collectives"] for group in report["groups"])
print("PASS" if len(messages) == 4 and collectives == 9 and report["steps"] >= 100 else "FAIL",
      f"{report['steps']} steps of {collectives:g} collectives and messages, {len(messages)} to a stage and back")
EOF
read -r word line < "$work/messages.txt" || { word=FAIL && line="see $raw"; }
say "$word" "sends and receives of two pipeline stages" "$line"

pairs=""
for pair in 1 2 3; do
    job "off$pair" -- sh -c "$script"
    job "on$pair" --attach -- sh -c "$script"
    pairs="$pairs $(seconds "on$pair") $(seconds "off$pair")"
done
# shellcheck disable=SC2086 # these are words
python3 - $pairs << 'EOF' > "$work/overhead.txt" 2>> "$raw"
import statistics, sys
times = [float(word) for word in sys.argv[1:]]
ratios = sorted(on / off - 1 for on, off in zip(times[::2], times[1::2]))
middle = statistics.median(ratios)
print("PASS" if middle <= 0.005 else "FAIL", f"{middle:+.3%} a step ({ratios[0]:+.3%} to {ratios[-1]:+.3%} over {len(ratios)} pairs)")
EOF
read -r word line < "$work/overhead.txt" || { word=FAIL && line="see $raw"; }
say "$word" "overhead of being attached" "$line"
exit $failed
