"""What a step computes and how much the rank's device could compute, as the job states it."""

import json
import sys
import time

from paceline._agent import agent
from paceline._errors import say

# The names of `wire/src/workload.rs`, and of the types of the tensors that measure the peak.
PRECISIONS = {"fp32": "float32", "tf32": None, "fp16": "float16", "bf16": "bfloat16", "fp8": None}
# The matrices that measure the peak are square, with this many rows, and are multiplied for this long.
ROWS, SECONDS = 1024, 0.3
# JSON carries whole numbers of 64 bits.
MOST = 2**63


def state(samples_per_step, unit, flops_per_sample, hardware_flops_per_sample, precision, peak_flops):
    """Reports the workload of this rank. Returns whether it did: a value that makes no sense is named and nothing is reported."""
    measures = peak_flops == "measure"
    counts = {
        "samples_per_step": samples_per_step,
        "flops_per_sample": flops_per_sample,
        "hardware_flops_per_sample": hardware_flops_per_sample,
        "peak_flops": None if measures else peak_flops,
    }
    wrong = [name for name, count in counts.items() if not is_count(count)]
    if wrong:
        return refuse("%s=%r is not a number above 0" % (wrong[0], counts[wrong[0]]))
    # A list, so that a value that cannot be hashed is named too.
    if precision is not None and precision not in list(PRECISIONS):
        return refuse("precision=%r is not one of %s" % (precision, ", ".join(PRECISIONS)))
    if unit is not None and not (isinstance(unit, str) and 0 < len(unit.encode()) <= 64):
        return refuse("unit=%r is not a name of 1 to 64 bytes" % (unit,))
    peak = measured(precision or "fp32") if measures else peak_flops
    if measures and peak is None:
        return False
    stated = {
        "samples_per_step": int(samples_per_step or 0),
        "sample_unit": unit or "",
        "flops_per_sample": int(flops_per_sample or 0),
        "hardware_flops_per_sample": int(hardware_flops_per_sample or 0),
        "precision": precision,
        "peak_flops_per_second": int(peak or 0),
        "is_peak_measured": measures,
    }
    agent().workload(json.dumps(stated))
    return True


def is_count(count):
    try:
        return count is None or 1 <= count < MOST
    except (TypeError, ValueError, RuntimeError):  # a text, an array, a tensor of several elements
        return False


def refuse(why):
    say("workload: " + why + "; nothing is reported")
    return False


def measured(precision):
    """Returns how many operations per second this process executes on CPUs, by multiplying matrices, or None if it cannot."""
    torch = sys.modules.get("torch")
    if torch is None:
        return refuse_peak("import torch before it")
    if PRECISIONS[precision] is None:
        return refuse_peak("CPUs have no " + precision)
    with torch.no_grad():
        # Constant matrices, because random ones would advance the job's generator.
        matrix = torch.ones(ROWS, ROWS, dtype=getattr(torch, PRECISIONS[precision]))
        product = torch.mm(matrix, matrix)
        best, until = None, time.perf_counter() + SECONDS
        while best is None or time.perf_counter() < until:
            began = time.perf_counter()
            torch.mm(matrix, matrix, out=product)
            took = time.perf_counter() - began
            best = took if best is None else min(best, took)
    return 2 * ROWS**3 / best


def refuse_peak(why):
    refuse('peak_flops="measure" multiplies matrices with PyTorch on CPUs: ' + why)
    return None
