"""Runs jobs in which things go wrong, each with and without Paceline, and compares how they end.

Usage: run.py FIRST COUNT. The seeds FIRST to FIRST + COUNT - 1 choose what goes wrong (`plan.py`). Prints one line of JSON for
each run that ended differently, and one with the counts so far after every 50 runs and at the end. The environment says where the package (MISHAPS_PACKAGE), the agent's
library (MISHAPS_LIBRARY), the program (MISHAPS_PROGRAM) and an empty folder (MISHAPS_FOLDER) are.
"""

import collections
import gc
import json
import os
import shutil
import subprocess
import sys
import time

import arms
import plan as plans

# PyTorch sometimes aborts with this message at the exit of a job, with Paceline or without it.
ABORTED = "terminate called without an active exception"
# How often both arms run again if they differ: some jobs end differently from time to time on their own.
AGAIN = 4
# The number of runs between two lines with the counts so far.
COUNTED = 50


class Servers:
    """The servers of the runs: one that works, one whose disk is full, and those that misbehave."""

    def __init__(self):
        here = os.path.dirname(os.path.abspath(__file__))
        self.misbehaving = subprocess.Popen([sys.executable, os.path.join(here, "servers.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ports = json.loads(self.misbehaving.stdout.readline())
        self.addresses = {kind: "http://127.0.0.1:%d" % port for kind, port in ports.items()}
        healthy, self.healthy = self.start("healthy")
        self.addresses.update(missing="http://127.0.0.1:1", no_address="no address at all", healthy=healthy)
        self.addresses["full_disk"] = os.environ.get("MISHAPS_FULL_DISK") or self.addresses["healthy"]
        self.killed = {}

    def start(self, name):
        folder = os.path.join(os.environ["MISHAPS_FOLDER"], "data-" + name)
        command = [os.environ["MISHAPS_PROGRAM"], "serve", "--listen", "127.0.0.1:0", "--data", folder]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return server.stdout.readline().decode().split()[-1], server

    def of(self, plan):
        """Returns the address of the server for a plan, and its process id if the job kills it."""
        if plan["server"] != "killed":
            return self.addresses[plan["server"]], None
        address, server = self.start("%d" % plan["seed"])
        self.killed[server.pid] = server
        return address, server.pid

    def end(self, pid):
        server = self.killed.pop(pid, None)
        if server is not None:
            server.kill()
            server.wait()
            server.stdout.close()

    def stop(self):
        self.misbehaving.kill()
        self.healthy.kill()


def drive(first, count):
    """Runs all seeds. In a forked rank, returns the function that the process must run."""
    # All forks have PyTorch, and what it imports for its first module.
    import job  # noqa: F401
    import torch._dynamo  # noqa: F401

    gc.freeze()

    servers, totals = Servers(), collections.Counter()
    for seed in range(first, first + count):
        plan, outcomes, errors, began = plans.of(seed), ([], []), ["", ""], time.monotonic()
        for attempt in range(1 + AGAIN):
            for is_watched in (False, True):
                arm = arms.Arm(plan, is_watched, servers)
                outcome, becomes = arms.run(arm)
                if becomes is not None:
                    return becomes
                outcomes[is_watched].append(outcome)
                said = arm.errors()
                totals["aborts of PyTorch " + ("with" if is_watched else "without")] += ABORTED in said
                if attempt == 0 or outcome not in outcomes[False]:
                    errors[is_watched] = said
                planted = arm.read("planted")
                totals["a planted error was raised"] += attempt == 0 and os.path.exists(arm.path("struck"))
                shutil.rmtree(arm.folder, ignore_errors=True)
            if all(outcome in outcomes[False] for outcome in outcomes[True]):
                break
        totals["longest, s"] = max(totals["longest, s"], round(time.monotonic() - began))
        tell(plan, planted, outcomes, errors, totals)
        if totals["runs"] % COUNTED == 0 or totals["runs"] == count:
            print(json.dumps({"what": "runs", **totals}), flush=True)
    servers.stop()
    return None


def tell(plan, planted, outcomes, errors, totals):
    totals["runs"] += 1
    totals["ended on their own with another result than 0"] += any(end != 0 for end, _ in outcomes[False][0])
    totals["said something"] += "paceline: " in errors[1]
    if len(outcomes[0]) > 1:
        totals["run again"] += 1
    differ = [outcome for outcome in outcomes[True] if outcome not in outcomes[False]]
    if differ:
        totals["different"] += 1
        report = {"what": "different", "plan": plan, "planted": planted, "times": len(differ), "of": len(outcomes[True])}
        print(json.dumps({**report, "without": outcomes[False][0], "with": differ[0], "errors": errors}), flush=True)


def main():
    becomes = drive(int(sys.argv[1]), int(sys.argv[2]))
    if becomes is not None:
        becomes()


main()
