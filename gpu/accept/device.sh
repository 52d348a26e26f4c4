# Events, CUPTI, NCCL and what they cost, by a program of our own: tests/src/bin/accept.
{
    PACELINE_BENCH_OUT=$results timeout 240 accept
    echo $? > "$work/status"
} | tee "$work/accept.txt"
case $(cat "$work/status") in
0) ;;
77) exit 77 ;;
124) say FAIL "device" "the checks took longer than 240 s" ;;
1) failed=1 ;;
*) say FAIL "device" "the checks ended by themselves (exit code $(cat "$work/status"))" ;;
esac
# A machine may do without CUPTI, but PyTorch brings one.
if grep -q '^SKIP overlap' "$work/accept.txt" && has_torch; then
    say FAIL "CUPTI" "PyTorch is here with one, and it was not found or does not work"
fi
