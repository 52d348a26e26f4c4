"""Computes the throughput and the model FLOPs utilization of char_lm, and compares the latter with the report's.

Usage: throughput.py OUTPUT REPORT.json WIDTH LAYERS CONTEXT PEAK

OUTPUT is what the job printed, and PEAK the device's peak rate in TFLOP/s. A token takes 6 N + 12 L d T FLOPs, with N
parameters, L layers, width d and context T (PaLM, arXiv:2204.02311, appendix B).
"""

import json
import re
import sys

# How far the report's figure, which is of all steps but the first, may be from the one computed here, which is a median.
MOST = 0.05

text, report = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
width, layers, context, peak = map(float, sys.argv[3:])
parameters = re.search(r"(\d+) parameters in", text)
rates = [float(rate) for rate in re.findall(r"([\d.]+) tokens/s", text)]
if not parameters or len(rates) < 2:
    print("FAIL", "the job printed no throughput")
else:
    flops = 6 * float(parameters[1]) + 12 * layers * width * context
    # The first figure includes the start of the device.
    rate = sorted(rates[1:])[len(rates[1:]) // 2]
    mfu = rate * flops / peak / 1e12
    ours = report["flops_utilization"]["model"]
    is_near = isinstance(ours, float) and abs(ours / mfu - 1) <= MOST
    print(
        "PASS" if is_near else "FAIL",
        f"{float(parameters[1]) / 1e6:.0f} M parameters, {rate:.0f} tokens/s, {rate * flops / 1e12:.1f} TFLOP/s,",
        f"MFU {mfu:.2%} of {peak:g} TFLOP/s; the report's {ours:.2%}" if is_near else f"MFU {mfu}; the report's {ours}",
    )
