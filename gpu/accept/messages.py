"""Whether the report of pipeline.py has its sends and receives: usage: messages.py REPORT.json"""

import json
import sys

MICRO_BATCHES, LEAST_STEPS = 4, 100

report = json.load(open(sys.argv[1]))
messages = [bucket for bucket in report["buckets"] if bucket["function"] == "send_receive"]
collectives = sum(group["cost"]["collectives"] for group in report["groups"])
# Each goes there and comes back, and there is one norm.
passed = len(messages) == MICRO_BATCHES and collectives == 2 * MICRO_BATCHES + 1 and report["steps"] >= LEAST_STEPS
print(
    "PASS" if passed else "FAIL",
    f"{report['steps']} steps of {collectives:g} collectives and messages, {len(messages)} to a stage and back",
)
