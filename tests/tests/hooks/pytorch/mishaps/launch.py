"""Starts the ranks of a run in their own interpreters: launch.py PLAN MEETING. Prints how each ended."""

import json
import os
import subprocess
import sys

with open(sys.argv[1]) as file:
    world = json.load(file)["world"]
job = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.py")] + sys.argv[1:]
variables = [dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank)) for rank in range(world)]
ranks = [subprocess.Popen(job, env=environment, stdout=subprocess.PIPE) for environment in variables]
for rank in ranks:
    # The prefix tells these lines from those of `paceline run`.
    for line in rank.communicate()[0].decode().splitlines() + ["ended: %d" % rank.returncode]:
        print("job:", line, flush=True)
sys.exit(next((abs(rank.returncode) for rank in ranks if rank.returncode), 0))
