"""Checks that a report names a rank for a cause. Usage: culprit.py REPORT.json RANK CAUSE"""

import json
import sys

report = json.load(open(sys.argv[1]))
wanted = (int(sys.argv[2]), sys.argv[3])
# A culprit is a rank, a group of ranks, or a word such as all.
of_a_rank = [verdict for verdict in report["verdicts"] if isinstance(verdict["culprit"], dict)]
passed = wanted in [(verdict["culprit"].get("rank"), verdict["cause"]) for verdict in of_a_rank]
print("PASS" if passed else "FAIL", " ".join(verdict["sentence"] for verdict in report["verdicts"]) or "no verdict")
