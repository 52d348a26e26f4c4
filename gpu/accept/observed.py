"""Checks that the report of ddp.py has its steps and buckets. Usage: observed.py REPORT.json"""

import json
import sys

# The job has 140 steps. The first ones are used to infer the boundaries of steps.
LEAST_STEPS = 90

report = json.load(open(sys.argv[1]))
steps, buckets = report["steps"], len(report.get("buckets", []))
print("PASS" if steps >= LEAST_STEPS and buckets > 0 else "FAIL", f"{steps} steps, {buckets} buckets")
