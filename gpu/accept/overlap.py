"""Compares a run's overlap by events with that by CUPTI, over its bursts. Usage: overlap.py BURSTS.json SERVER RANKS"""

import csv
import io
import json
import sys
import time
import urllib.request

MOST_APART = 0.01


def get(path):
    return urllib.request.urlopen(f"{sys.argv[2]}/api/v1/runs{path}").read().decode()


ranks = int(sys.argv[3])
answers = [(answer["rank"], answer["burst"]) for answer in json.load(open(sys.argv[1]))]
refused = [burst["outcome"]["reason"] for _, burst in answers if burst["outcome"]["result"] == "refused"]
if refused or len(answers) != ranks:
    print("FAIL", f"{len(answers)} of {ranks} ranks recorded a burst", *refused)
    sys.exit()
run = json.loads(get(""))[0]
rows = list(csv.DictReader(io.StringIO(get(f"/{run['run']}/export?format=csv&steps=0..{run['last_step']}"))))
unix = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
sums = dict.fromkeys(["collective_nanos", "hidden_nanos", "covered_nanos", "dropped"], 0)
hidden = collectives = 0
for rank, burst in answers:
    sums = {name: so_far + burst["outcome"][name] for name, so_far in sums.items()}
    for row in rows:
        start, end = int(row["start_unix_ns"]), int(row["end_unix_ns"])
        if int(row["rank"]) == rank and burst["from"] + unix <= start and end <= burst["until"] + unix:
            hidden += int(row["hidden_ns"])
            collectives += end - start
by_events, busy, strict = (
    part / max(whole, 1)
    for part, whole in (
        (hidden, collectives),
        (sums["covered_nanos"], sums["collective_nanos"]),
        (sums["hidden_nanos"], sums["collective_nanos"]),
    )
)
passed = collectives and sums["collective_nanos"] and not sums["dropped"] and abs(busy - by_events) <= MOST_APART
print(
    "PASS" if passed else "FAIL",
    f"{by_events:.2%} by events; by CUPTI {busy:.2%} covered by a busy stream, {strict:.2%} hidden by kernels alone;",
    f"{sums['dropped']} records dropped",
)
