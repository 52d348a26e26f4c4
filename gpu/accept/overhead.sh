# Checks what it costs an unmodified PyTorch job to be attached.

# Prints the time of a run, or the word none if the run reported no time.
seconds_or_none() {
    found=$(seconds "$1")
    echo "${found:-none}"
}

# Runs each attached job between two that are not attached, which differ from each other only by noise.
overhead() {
    job off -- sh -c "$(python ddp.py)"
    if [ -z "$(seconds off)" ]; then
        say SKIP "overhead of being attached" "two ranks do not run on this GPU even without Paceline; see $raw"
        return
    fi
    all=$(seconds off)
    for number in 1 2 3; do
        job "on$number" --attach -- sh -c "$(python ddp.py)"
        job "off$number" -- sh -c "$(python ddp.py)"
        all="$all $(seconds_or_none "on$number") $(seconds_or_none "off$number")"
    done
    # shellcheck disable=SC2086 # these are words
    judge "overhead of being attached" overhead.py $all
}

raw=$results/$today-accept-overhead.txt
: > "$raw"
if has_torch; then
    overhead
else
    say SKIP "overhead of being attached" "there is no python3 with a torch that finds the GPU"
fi
