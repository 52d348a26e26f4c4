"""Checks the cost of observation per step. Usage: overhead.py OFF ON OFF..., in seconds per step, in the runs' order"""

import statistics
import sys

MOST = 0.005

words = sys.argv[1:]
if "none" in words or len(words) < 3 or len(words) % 2 == 0:
    print("FAIL", "a run reported no time; alternately without and with observation:", *words)
    sys.exit()
times = [float(word) for word in words]
off, on = times[::2], times[1::2]
neighbors = list(zip(off, off[1:]))
costs = sorted(time / statistics.mean(pair) - 1 for time, pair in zip(on, neighbors))
noise = max(abs(after / before - 1) for before, after in neighbors)
cost = statistics.median(costs)
line = f"{cost:+.3%} per step ({costs[0]:+.3%} to {costs[-1]:+.3%} in {len(costs)} runs); unobserved runs vary by {noise:.3%}"
if cost <= MOST:
    print("PASS", line)
elif cost <= noise:
    print("SKIP", line + ", so the cost cannot be measured")
else:
    print("FAIL", line)
