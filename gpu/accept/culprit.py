"""Checks that a report names a rank for a cause, and where in its code. Usage: culprit.py REPORT.json RANK CAUSE [FUNCTION]"""

import json
import sys

report = json.load(open(sys.argv[1]))
rank, cause, function = int(sys.argv[2]), sys.argv[3], "".join(sys.argv[4:])


def place(verdict):
    return (verdict.get("code") or {}).get("at", "")


# A culprit is a rank, a group of ranks, or a word such as all.
passed = any(
    (verdict["culprit"], verdict["cause"]) == ({"rank": rank}, cause) and function in place(verdict)
    for verdict in report["verdicts"]
)
sentences = [f"{verdict['sentence']} ({place(verdict) or 'no place in the code'})" for verdict in report["verdicts"]]
print("PASS" if passed else "FAIL", "; ".join(sentences) or "no verdict")
