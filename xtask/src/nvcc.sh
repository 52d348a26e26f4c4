#!/bin/sh
# Stands in for NVIDIA's compiler where only Rust's side of jobs on GPUs is checked: makes the files that a build of candle's
# kernels asks for, empty.
if [ "$1" = --version ]; then
    echo "Cuda compilation tools, release 13.0, V13.0.0"
    exit
fi
directory=
for word; do
    case $before in
    -o) : > "$word" ;;
    --output-directory) directory=$word ;;
    esac
    before=$word
done
if [ -n "$directory" ]; then
    # The source comes last.
    : > "$directory/$(basename "$before" .cu).ptx"
fi
