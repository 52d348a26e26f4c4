#!/bin/sh
# A stub of NVIDIA's compiler for checks of the Rust code only. It creates the files that the build of candle's kernels
# expects, all empty.
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
    # The last argument is the source.
    : > "$directory/$(basename "$before" .cu).ptx"
fi
