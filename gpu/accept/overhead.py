"""What being observed costs a step: usage: overhead.py OFF ON OFF ON OFF..., in seconds of a step, in the order of the runs"""

import statistics
import sys

MOST = 0.005

words = sys.argv[1:]
if "none" in words or len(words) < 3 or len(words) % 2 == 0:
    print("FAIL", "some run told no time, of without and with in turn:", *words)
    sys.exit()
times = [float(word) for word in words]
off, on = times[::2], times[1::2]
neighbours = list(zip(off, off[1:]))
costs = sorted(time / statistics.mean(pair) - 1 for time, pair in zip(on, neighbours))
noise = max(abs(after / before - 1) for before, after in neighbours)
cost = statistics.median(costs)
line = f"{cost:+.3%} a step ({costs[0]:+.3%} to {costs[-1]:+.3%} over {len(costs)} runs); without it runs differ by {noise:.3%}"
if cost <= MOST:
    print("PASS", line)
elif cost <= noise:
    print("SKIP", line + ", in which this is lost")
else:
    print("FAIL", line)
