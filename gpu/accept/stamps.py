"""Compares the times of collectives that NCCL's plugin stamps with those of torch.profiler, in the same steps.

Usage: stamps.py ROWS.csv FOLDER, with the rows of `paceline export` and the traces of `ddp.py --profile FOLDER`.
"""

import csv
import json
import statistics
import sys
from pathlib import Path

RANKS = 2
# The largest difference of the median lengths, in microseconds. Starts and ends must be within their error bounds.
MOST_APART = 20


def kernels_of(file):
    """Returns the begin and the end of each of NCCL's kernels, in nanoseconds since 1970."""
    trace = json.loads(file.read_text())
    base = trace.get("baseTimeNanoseconds", 0)
    events = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    times = [(event["ts"] * 1e3 + base, event["dur"] * 1e3) for event in events if "nccl" in event["name"]]
    return len(events), [(begin, begin + length) for begin, length in times]


rows = list(csv.DictReader(open(sys.argv[1])))
starts, ends, lengths, bounds, kernels, collectives = [], [], [], [], 0, 0
for rank in range(RANKS):
    recorded = [row for row in rows if int(row["rank"]) == rank and row["start_unix_ns"] and row["end_unix_ns"]]
    bounds += [int(row["clock_error_bound_ns"]) / 1e3 for row in recorded]
    recorded = [(int(row["start_unix_ns"]), int(row["end_unix_ns"])) for row in recorded]
    count, profiled = kernels_of(Path(sys.argv[2], f"{rank}.json"))
    kernels += count
    collectives += len(profiled)
    for begin, end in profiled:
        start, stop = min(recorded, key=lambda times: abs(times[0] + times[1] - begin - end))
        starts.append((start - begin) / 1e3)
        ends.append((stop - end) / 1e3)
        lengths.append((stop - start - end + begin) / 1e3)


def middle(values):
    twentieths = statistics.quantiles(values, n=20)
    return f"{statistics.median(values):+.1f} us ({twentieths[0]:+.1f} to {twentieths[-1]:+.1f})"


if not collectives:
    print("FAIL", f"the profiler recorded {kernels} kernels, none of NCCL")
else:
    bound = statistics.median(bounds)
    passed = abs(statistics.median(lengths)) <= MOST_APART
    passed = passed and max(abs(statistics.median(values)) for values in (starts, ends)) <= bound
    print(
        "PASS" if passed else "FAIL",
        f"{collectives} all-reduces, median difference to torch.profiler (5th to 95th percentile): start {middle(starts)},",
        f"end {middle(ends)}, length {middle(lengths)}; the error bound of the clocks is {bound:.0f} us",
    )
