"""Waits until the newest run of a server has this many steps, for at most a minute. Usage: steps.py SERVER STEPS"""

import json
import sys
import time
import urllib.request

until = time.monotonic() + 60
while time.monotonic() < until:
    runs = json.load(urllib.request.urlopen(f"{sys.argv[1]}/api/v1/runs"))
    if runs and (runs[0].get("last_step") or 0) >= int(sys.argv[2]):
        sys.exit()
    time.sleep(0.2)
sys.exit(f"the run has too few steps after a minute: {runs}")
