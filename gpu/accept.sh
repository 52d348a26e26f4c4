#!/bin/sh
# Checks a machine with a GPU, with programs that were built elsewhere: `cargo xtask gpu` puts them into target/gpu.
#
#   gpu/accept.sh [RESULTS [PART...]]
#
# Prints one line per check: PASS, FAIL or SKIP. Raw results go to the folder RESULTS (default: benches/results). The
# parts are device (events, CUPTI, NCCL, costs), char_lm (the example job), torch (unmodified PyTorch jobs), frameworks
# (jobs of frameworks on top of PyTorch) and overhead (what it costs to be attached). Name some to run only these, for
# instance if the time of a command is limited.
# Without a GPU, the part device ends the script with exit code 77, and the other parts print SKIP. Needs no Rust. Torch,
# the frameworks, and the libraries for char_lm, are those that python3 has. PACELINE_WORK names a folder that keeps the
# data of all runs. PACELINE_BROWSER names a Chromium, which takes pictures of the page during some runs.
set -u
here=$(cd "$(dirname "$0")" && pwd)
programs=${PACELINE_PROGRAMS:-$here/../target/gpu}
results=$(mkdir -p "${1:-$here/../benches/results}" && cd "${1:-$here/../benches/results}" && pwd)
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- device char_lm torch frameworks overhead
for part; do
    if [ ! -f "$here/accept/$part.sh" ]; then
        echo "FAIL $part: there is no such part; the parts are device, char_lm, torch, frameworks and overhead"
        exit 2
    fi
done
if [ ! -x "$programs/accept" ]; then
    echo "FAIL programs: $programs/accept is missing; build with 'cargo xtask gpu' and copy the folder to this machine"
    exit 1
fi
PATH=$programs:$PATH
# The CUDA libraries of PyTorch come before those of the system, which may be of another release.
LD_LIBRARY_PATH=$(python3 -c '
import glob, site
print(":".join(path for folder in site.getsitepackages() for path in glob.glob(folder + "/nvidia/*/lib")))' 2> /dev/null):${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH
today=$(date -u +%Y-%m-%d)
work=${PACELINE_WORK:-}
if [ -z "$work" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"
failed=0

# Prints the result of a check: WORD NAME LINE.
say() {
    echo "$1 $2: $3"
    if [ "$1" = FAIL ]; then failed=1; fi
}

# Prints the result that a program of accept/ decides on: NAME PROGRAM ARGUMENTS... The program prints WORD and a line.
# Its errors go to $raw.
judge() {
    name=$1 program=$2
    shift 2
    python3 "$here/accept/$program" "$@" > "$work/judged.txt" 2>> "$raw"
    read -r word line < "$work/judged.txt" || { word=FAIL && line="$program printed no result; see $raw"; }
    say "$word" "$name" "$line"
}

# Starts a server: DATA. Sets $server to its address and $serving to its process.
serve() {
    timeout 300 paceline serve --listen 127.0.0.1:0 --data "$1" > "$work/serve.txt" 2>&1 &
    serving=$!
    server=
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        server=$(sed -n 's/.*\(http:[^ ]*\).*/\1/p' "$work/serve.txt" | head -1)
        [ -z "$server" ] || break
        sleep 0.5
    done
}

stop_serving() {
    kill "$serving" 2> /dev/null
    wait "$serving" 2> /dev/null
}

# Takes a picture of a view of the newest run: NAME VIEW, such as /utilization.
picture() {
    [ -n "${PACELINE_BROWSER:-}" ] || return 0
    run=$(python3 -c 'import json, sys, urllib.request
print(json.load(urllib.request.urlopen(sys.argv[1] + "/api/v1/runs"))[0]["run"])' "$server" 2>> "$raw")
    timeout 30 python3 "$here/accept/picture.py" "$PACELINE_BROWSER" "$server/runs/$run$2" \
        "$results/$today-accept-$1.png" 5 2>> "$raw"
}

# Runs a job of two ranks on one GPU: NAME OPTIONS... -- COMMAND. NCCL refuses two ranks on one GPU unless they appear
# to be on two hosts. They then communicate over the loopback interface, with several threads.
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

has_torch() { python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; }

for part; do
    begin=$(date +%s)
    # shellcheck source=/dev/null # one of accept/
    . "$here/accept/$part.sh"
    echo "-- $part: $(($(date +%s) - begin)) s"
done
exit $failed
