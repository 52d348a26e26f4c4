"""Compares the memory that was recorded of scarce.py with what its allocator counted at the end.

Usage: memory.py SERVER FOLDER REPORT.json
"""

import json
import sys
import urllib.request

server, folder, report = sys.argv[1:]


def get(path):
    return json.load(urllib.request.urlopen(f"{server}/api/v1/runs{path}"))


devices = {device["rank"]: device["sample"]["figures"] for device in get(f"/{get('')[0]['run']}/devices")}
passed, parts = set(devices) == {0, 1}, []
for rank, ours in devices.items():
    theirs = json.load(open(f"{folder}/memory-{rank}.json"))
    for name, wanted in theirs.items():
        found = ours.get(name)
        # The last sample is up to two seconds older than the end of the job.
        is_near = name == "allocation_retries" and found is not None and 0.5 * wanted <= found <= wanted
        passed = passed and (found == wanted or is_near)
        parts.append(f"rank {rank} {name} {found} ({wanted})")
sentences = [
    line
    for verdict in json.load(open(report))["verdicts"]
    if verdict["culprit"] == {"rank": 1}
    for line in [verdict["sentence"], *verdict["evidence"]]
]
passed = passed and any("ran out of memory" in sentence for sentence in sentences)
print("PASS" if passed else "FAIL", "; ".join(sentences) or "no verdict on rank 1", "|", ", ".join(parts))
