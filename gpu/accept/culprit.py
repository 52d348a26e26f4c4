"""Checks that a report names a rank and a cause. Usage: culprit.py REPORT.json RANK CAUSE"""

import json
import sys

report = json.load(open(sys.argv[1]))
found = [(verdict["culprit"].get("rank"), verdict["cause"], verdict["confidence"]) for verdict in report["verdicts"]]
passed = found and found[0][:2] == (int(sys.argv[2]), sys.argv[3])
print("PASS" if passed else "FAIL", "; ".join(f"rank {rank}, {cause}, {sure} confidence" for rank, cause, sure in found) or "no verdict")
