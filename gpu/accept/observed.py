"""Checks that the report of ddp.py has its steps, buckets and phases. Usage: observed.py REPORT.json"""

import json
import sys

# The job has 190 steps. The first ones are used to infer the boundaries of steps.
LEAST_STEPS = 90
PHASES = ["forward", "backward", "optimizer"]

report = json.load(open(sys.argv[1]))
steps, buckets = report["steps"], len(report.get("buckets", []))
phases = [[rank[f"{phase}_nanos"] / max(steps, 1) / 1e6 for phase in PHASES] for rank in report["ledger"]]
passed = steps >= LEAST_STEPS and buckets > 0 and phases and all(min(rank) > 0 for rank in phases)
listed = "; ".join(", ".join(f"{phase} {millis:.3f} ms" for phase, millis in zip(PHASES, rank)) for rank in phases)
print("PASS" if passed else "FAIL", f"{steps} steps, {buckets} buckets; per step and rank {listed}")
