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

if ! python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
    say SKIP "PyTorch" "no python3 with torch that sees the GPU"
    exit $failed
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
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
