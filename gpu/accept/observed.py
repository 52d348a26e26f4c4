"""Whether the report of ddp.py has its steps and buckets: usage: observed.py REPORT.json"""

import json
import sys

# Of 140, less those in which it is found out what a step is.
LEAST_STEPS = 90

report = json.load(open(sys.argv[1]))
steps, buckets = report["steps"], len(report.get("buckets", []))
print("PASS" if steps >= LEAST_STEPS and buckets > 0 else "FAIL", f"{steps} steps, {buckets} buckets")
