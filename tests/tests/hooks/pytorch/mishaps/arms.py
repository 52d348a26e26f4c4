"""Runs one arm of a run, with or without Paceline, and returns how it ended."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

# The longest time for an arm. Each takes less than a tenth of it.
SECONDS = 45
HERE = os.path.dirname(os.path.abspath(__file__))


class Arm:
    """An arm: its processes write to files in a folder of their own."""

    def __init__(self, plan, is_watched, servers):
        self.plan, self.is_watched, self.servers = plan, is_watched, servers
        self.folder = tempfile.mkdtemp(dir=os.environ["MISHAPS_FOLDER"])

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        try:
            with open(self.path(name), errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def outcome(self, ends):
        """Returns what must not depend on Paceline: how each process ended, and what it printed."""
        return [[end, self.read("out%d" % number)] for number, end in enumerate(ends)]

    def errors(self):
        return "".join(self.read(name) for name in sorted(os.listdir(self.folder)) if name.startswith("err"))


def redirect(arm, rank):
    for name, number in ("out", 1), ("err", 2):
        file = os.open(arm.path("%s%d" % (name, rank)), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    if arm.plan["no_stderr"]:
        # Nothing reads it, as in `job 2>&1 | head`.
        unread, end = os.pipe()
        os.close(unread)
        os.dup2(end, 2)


def wait(pids):
    """Waits for processes and returns their exit codes; negative numbers are signals."""
    until, ends = time.monotonic() + SECONDS, {}
    while len(ends) < len(pids):
        for pid in pids:
            if pid not in ends:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    ends[pid] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            for pid in set(pids) - set(ends):
                # With the processes that it started.
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                ends[pid] = "did not end"
        time.sleep(0.002)
    return [ends[pid] for pid in pids]


def forked(arm):
    """Runs the ranks as forks of this process. Returns the outcome, or in a rank a function that runs it."""
    server, server_pid = arm.servers.of(arm.plan) if arm.is_watched else (None, None)
    pids = []
    for rank in range(arm.plan["world"]):
        pids.append(os.fork())
        if pids[-1] == 0:
            return None, lambda: enter(arm, rank, server, server_pid)
    ends = wait(pids)
    arm.servers.end(server_pid)
    return arm.outcome(ends), None


def enter(arm, rank, server, server_pid):
    """Becomes a rank."""
    import job
    import plant

    os.setpgid(0, 0)
    redirect(arm, rank)
    if not arm.is_watched:
        return job.run(arm.plan, rank, arm.path("meeting"))
    planted = plant.plant_all(arm.plan, server, arm.path("struck"))
    with open(arm.path("planted"), "w") as file:
        file.write(", ".join(planted))
    import paceline

    return job.run(arm.plan, rank, arm.path("meeting"), paceline.watch, server_pid)


def launched(arm):
    """Runs the ranks in new interpreters, under `paceline` or with its `sitecustomize`."""
    with open(arm.path("plan"), "w") as file:
        json.dump(arm.plan, file)
    words = [sys.executable, os.path.join(HERE, "launch.py"), arm.path("plan"), arm.path("meeting")]
    environment, server_pid = dict(os.environ), None
    if arm.is_watched:
        environment.update(arm.plan["variables"])
        if arm.plan["start"] != "site" and "PACELINE_RUN_ID" in arm.plan["variables"]:
            # The launcher refuses an id that it cannot use before it starts the job.
            environment.pop("PACELINE_RUN_ID")
        server, server_pid = arm.servers.of(arm.plan)
        if arm.plan["start"] == "site":
            site = os.path.join(os.environ["MISHAPS_PACKAGE"], "paceline", "_site")
            environment.update(PYTHONPATH=site, PACELINE_SERVER=server, PACELINE_AGENT_LIBRARY=os.environ["MISHAPS_LIBRARY"])
        else:
            words = [os.environ["MISHAPS_PROGRAM"], arm.plan["start"], "--data", arm.path("data"), "--"] + words
            if arm.plan["start"] == "run":
                words.insert(2, "--attach")
    with open(arm.path("out0"), "wb") as out, open(arm.path("err0"), "wb") as errors:
        ended = subprocess.run(words, env=environment, stdout=out, stderr=errors, timeout=4 * SECONDS)
    arm.servers.end(server_pid)
    lines = [line[line.index("job:") :] for line in arm.read("out0").splitlines() if "job:" in line]
    return [[ended.returncode, lines]], None


def run(arm):
    return forked(arm) if arm.plan["start"] == "fork" else launched(arm)
