"""Compares the samples of a running job's device with those of nvidia-smi, over some seconds. Usage: samples.py SERVER"""

import json
import statistics
import subprocess
import sys
import time
import urllib.request

SECONDS = 10
# Our name, the name that nvidia-smi gives, the factor between them, and the largest difference of the medians.
FIGURES = [
    ("utilization_percent", "utilization.gpu", 1, 5),
    ("memory_used_bytes", "memory.used", 2**20, 2**28),
    ("power_milliwatts", "power.draw", 1000, 25_000),
    ("sm_clock_megahertz", "clocks.sm", 1, 60),
    ("memory_clock_megahertz", "clocks.mem", 1, 60),
    ("temperature_celsius", "temperature.gpu", 1, 2),
]


def get(path):
    return json.load(urllib.request.urlopen(f"{sys.argv[1]}/api/v1/runs{path}"))


query = ",".join(name for _, name, _, _ in FIGURES)
command = ["nvidia-smi", "-i", "0", f"--query-gpu={query}", "--format=csv,noheader,nounits", "-lms", "500"]
peer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
run = get("")[0]["run"]
ours = {}
until = time.monotonic() + SECONDS
while time.monotonic() < until:
    for device in get(f"/{run}/devices"):
        ours[(device["rank"], device["sample"]["at"])] = device["sample"]["figures"]
    time.sleep(0.5)
peer.terminate()
theirs = [line.split(", ") for line in peer.communicate()[0].splitlines() if line.count(",") == len(FIGURES) - 1]
if not ours or not theirs:
    print("FAIL", f"{len(ours)} samples, {len(theirs)} of nvidia-smi")
    sys.exit()
passed, parts = True, []
for at, (name, other, factor, most) in enumerate(FIGURES):
    found = [figures[name] for figures in ours.values() if name in figures]
    wanted = [float(row[at]) * factor for row in theirs if row[at].replace(".", "", 1).isdigit()]
    if not wanted:
        continue
    if not found:
        passed = False
        parts.append(f"{other} missing")
        continue
    found, wanted = statistics.median(found), statistics.median(wanted)
    passed = passed and abs(found - wanted) <= most
    parts.append(f"{other} {found / factor:g} ({wanted / factor:g})")
others = sorted({name for figures in ours.values() for name in figures} - {name for name, *_ in FIGURES})
print(json.dumps({"samples": list(ours.values()), "nvidia_smi": theirs}), file=sys.stderr)
print(
    "PASS" if passed else "FAIL",
    f"medians of {len(ours)} samples, and nvidia-smi's in parentheses: {', '.join(parts)}; also sampled: {', '.join(others)}",
)
