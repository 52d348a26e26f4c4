"""Checks that a training ends with the loss of a reference. Usage: losses.py REFERENCE.csv FOUND.csv MOST_OFF"""

import csv
import sys
from pathlib import Path

LAST = 20


def last(file):
    with open(file) as opened:
        rows = list(csv.DictReader(opened))[-LAST:]
    return sum(float(row["loss"]) for row in rows) / len(rows)


reference, found, most = *map(Path, sys.argv[1:3]), float(sys.argv[3])
missing = [file.name for file in (reference, found) if not file.is_file() or file.stat().st_size == 0]
if missing:
    print("FAIL", " and ".join(missing), "missing or empty")
else:
    wanted, found = last(reference), last(found)
    word = "PASS" if abs(found / wanted - 1) <= most else "FAIL"
    print(word, f"loss {found:.4f}, {wanted:.4f} on the CPU; they may differ by {most:.0%}")
