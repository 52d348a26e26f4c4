"""Checks that a report names rank 1 for its input, with the planted line, and has these phases of each rank.

Usage: framework.py REPORT.json SCRIPT STEPS [PHASE...]
"""

import json
import pathlib
import sys

report, script, updates = json.load(open(sys.argv[1])), pathlib.Path(sys.argv[2]), int(sys.argv[3])
wanted = sys.argv[4:]


def place(verdict):
    return (verdict.get("code") or {}).get("at", "")


line = next(at for at, text in enumerate(script.read_text().splitlines(), 1) if text.endswith("  # planted"))
planted = f"{script.name}:{line} "
named = [
    verdict
    for verdict in report["verdicts"]
    if (verdict["culprit"], verdict["cause"]) == ({"rank": 1}, "input") and planted in place(verdict)
]
steps = report["steps"]
phases = [[rank[f"{phase}_nanos"] / max(steps, 1) / 1e6 for phase in wanted] for rank in report["ledger"]]
missing = sorted({phase for rank in phases for phase, millis in zip(wanted, rank) if millis <= 0})
passed = named and len(phases) == 2 and not missing and updates / 2 <= steps <= updates
listed = "; ".join(", ".join(f"{phase} {millis:.3f} ms" for phase, millis in zip(wanted, rank)) for rank in phases)
sentences = "; ".join(f"{verdict['sentence']} ({place(verdict) or 'no line'})" for verdict in report["verdicts"])
print(
    "PASS" if passed else "FAIL",
    f"{steps} of {updates} steps; {sentences or 'no verdict'}; missing phases: {', '.join(missing) or 'none'}; per step and rank {listed}",
)
