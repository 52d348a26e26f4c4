"""Computes the throughput and the model FLOPs utilization of char_lm. Usage: throughput.py OUTPUT WIDTH LAYERS CONTEXT PEAK

OUTPUT is what the job printed, and PEAK the device's peak rate in TFLOP/s. A token takes 6 N + 12 L d T FLOPs, with N
parameters, L layers, width d and context T (PaLM, arXiv:2204.02311, appendix B).
"""

import re
import sys

text = open(sys.argv[1]).read()
width, layers, context, peak = map(float, sys.argv[2:])
parameters = re.search(r"(\d+) parameters in", text)
rates = [float(rate) for rate in re.findall(r"([\d.]+) tokens/s", text)]
if not parameters or len(rates) < 2:
    print("FAIL", "the job printed no throughput")
else:
    flops = 6 * float(parameters[1]) + 12 * layers * width * context
    # The first figure includes the start of the device.
    rate = sorted(rates[1:])[len(rates[1:]) // 2]
    print(
        "PASS",
        f"{float(parameters[1]) / 1e6:.0f} M parameters, {rate:.0f} tokens/s, {rate * flops / 1e12:.1f} TFLOP/s,",
        f"MFU {rate * flops / peak / 1e12:.1%} of {peak:g} TFLOP/s",
    )
