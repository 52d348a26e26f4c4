#!/bin/sh
# Checks on a machine with a GPU, by programs that were built elsewhere: `cargo xtask gpu` puts them into target/gpu.
#
#   gpu/accept.sh [RESULTS [PART...]]
#
# One line a check: PASS, FAIL or SKIP. Raw results go to the folder RESULTS (default: benches/results). Parts are
# device (events, CUPTI, NCCL, costs), char_lm (the example job) and torch (unchanged PyTorch jobs); all of them unless
# some are named, which helps where one command may not run for long. Without a GPU the part device ends it with exit
# code 77, and the others say SKIP. Needs no Rust; torch, and libraries for char_lm, are those that python3 has.
set -u
here=$(cd "$(dirname "$0")" && pwd)
programs=${PACELINE_PROGRAMS:-$here/../target/gpu}
results=$(mkdir -p "${1:-$here/../benches/results}" && cd "${1:-$here/../benches/results}" && pwd)
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- device char_lm torch
for part; do
    if [ ! -f "$here/accept/$part.sh" ]; then
        echo "FAIL $part: there is no such part; there are device, char_lm and torch"
        exit 2
    fi
done
if [ ! -x "$programs/accept" ]; then
    echo "FAIL programs: $programs/accept is not there; build with 'cargo xtask gpu' and bring the folder along"
    exit 1
fi
PATH=$programs:$PATH
# CUDA's libraries that PyTorch brings, before the system's, of which there may be others.
LD_LIBRARY_PATH=$(python3 -c '
import glob, site
print(":".join(path for folder in site.getsitepackages() for path in glob.glob(folder + "/nvidia/*/lib")))' 2> /dev/null):${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH
today=$(date -u +%Y-%m-%d)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# Says what came of a check: WORD NAME LINE.
say() {
    echo "$1 $2: $3"
    if [ "$1" = FAIL ]; then failed=1; fi
}

# Lets a program of accept/ judge; it prints WORD and a line: NAME PROGRAM ARGUMENTS... Its complaints go to $raw.
judge() {
    name=$1 program=$2
    shift 2
    python3 "$here/accept/$program" "$@" > "$work/judged.txt" 2>> "$raw"
    read -r word line < "$work/judged.txt" || { word=FAIL && line="$program found nothing to judge; see $raw"; }
    say "$word" "$name" "$line"
}

has_torch() { python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; }

for part; do
    begin=$(date +%s)
    # shellcheck source=/dev/null # one of accept/
    . "$here/accept/$part.sh"
    echo "-- $part: $(($(date +%s) - begin)) s"
done
exit $failed
