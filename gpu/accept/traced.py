"""Checks the traces of ddp.py on two ranks. Usage: traced.py FOLDER STEPS"""

import gzip
import json
import sys

folder, steps = sys.argv[1], int(sys.argv[2])
BUCKETS = 2

passed, parts, steps_of = True, [], []
for rank in range(2):
    with gzip.open(f"{folder}/rank-{rank}.trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    transfers = [event for event in kernels if event["name"].startswith("ncclDevKernel")]
    names = sorted({event["name"] for event in events if str(event.get("name")).startswith("ProfilerStep#")})
    passed = passed and len(names) == steps and len(transfers) >= BUCKETS * (steps - 1) and len(kernels) > len(transfers)
    steps_of.append(names)
    parts.append(f"rank {rank}: {len(kernels)} kernels, {len(transfers)} of them of NCCL, {', '.join(names)}")
passed = passed and steps_of[0] == steps_of[1]
print("PASS" if passed else "FAIL", "; ".join(parts))
