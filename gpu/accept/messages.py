"""Checks that the report of pipeline.py has all sends and receives. Usage: messages.py REPORT.json"""

import json
import sys

MICRO_BATCHES, LEAST_STEPS = 4, 100

report = json.load(open(sys.argv[1]))
messages = [bucket for bucket in report["buckets"] if bucket["function"] == "send_receive"]
collectives = sum(group["cost"]["collectives"] for group in report["groups"])
# Each micro-batch is sent to the second stage and its gradients back, and there is one all-reduce of the norm.
passed = len(messages) == MICRO_BATCHES and collectives == 2 * MICRO_BATCHES + 1 and report["steps"] >= LEAST_STEPS
print(
    "PASS" if passed else "FAIL",
    f"{report['steps']} steps of {collectives:g} collectives and messages, {len(messages)} pairs of messages",
)
