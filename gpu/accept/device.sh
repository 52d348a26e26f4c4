# Checks events, CUPTI, NCCL and their costs, with the program of this folder (src/).
{
    PACELINE_BENCH_OUT=$results timeout 240 accept
    echo $? > "$work/status"
} | tee "$work/accept.txt"
case $(cat "$work/status") in
0) ;;
77) exit 77 ;;
124) say FAIL "device" "the checks took longer than 240 s" ;;
1) failed=1 ;;
*) say FAIL "device" "the checks ended unexpectedly (exit code $(cat "$work/status"))" ;;
esac
# A machine may lack CUPTI, but PyTorch includes it.
if grep -q '^SKIP overlap' "$work/accept.txt" && has_torch; then
    say FAIL "CUPTI" "PyTorch is installed and includes CUPTI, which was not found or does not work"
fi
