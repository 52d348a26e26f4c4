"""Logs Paceline's figures on rank 0 to the tracker that the job already uses.

A thread asks the server for the run's report now and then, and passes on what is known. The job never waits for it, and no
error of the server or the tracker reaches the job. No tracker is imported here.
"""

import json
import os
import sys
import threading
import urllib.parse
import urllib.request

from paceline import _run
from paceline._errors import say
from paceline._trackers import tracker_of

# The longest wait for one answer of the server.
PATIENCE_SECONDS = 10.0
# Where launchers put the rank of a process that has no process group yet.
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
# The trackers of this process that are written to.
started = []


def start(to, every):
    """Logs to `to` every `every` seconds from now on. Returns whether this process does so."""
    if not every > 0:
        raise ValueError("every must be a positive number of seconds: %r" % (every,))
    if rank() not in (None, 0):
        return False
    if not any(one is to for one in started):
        # Fails here, in the caller, if `to` is not a tracker.
        log = Log(to, every)
        started.append(to)
        threading.Thread(target=log.run, name="paceline-log", daemon=True).start()
    return True


def rank():
    """Returns the rank of this process; None if it is not known yet."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return next((int(os.environ[name]) for name in RANKS if os.environ.get(name, "").isdigit()), None)


class Log:
    """Passes the figures of this process's run on to one tracker."""

    def __init__(self, to, every):
        self.find, self.every = tracker_of(to), every
        self.pause = threading.Event()
        # The newest step whose figures were logged.
        self.step = -1

    def run(self):
        while not self.pause.wait(self.every):
            try:
                self.pass_on()
            except Exception as error:  # an observer never fails its host
                say("figures were not logged: %s: %s" % (type(error).__name__, error))

    def pass_on(self):
        """Logs the figures if there are newer ones. Returns the step that they are for."""
        if rank() not in (None, 0):
            self.pause.set()
            return None
        tracker = self.find()
        report = None if tracker is None else newest_report()
        # The first and the last observed step, if there are any.
        steps = (report or {}).get("step_range")
        if not steps or steps[1] <= self.step:
            return None
        self.step = steps[1]
        tracker.write(figures_of(report), verdict_of(report), self.step)
        return self.step


def newest_report():
    """Returns the server's report on this run; None if there is none yet or the server does not answer."""
    server, run = os.environ.get("PACELINE_SERVER"), _run.given()
    if not server or not run:
        return None
    request = urllib.request.Request(server.rstrip("/") + "/api/v1/runs/" + urllib.parse.quote(run, safe=""))
    token = os.environ.get("PACELINE_TOKEN", "").strip()
    if token:
        request.add_header("authorization", "Bearer " + token)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)
    except (OSError, ValueError) as error:
        # A server knows no run before the first batch of records.
        if getattr(error, "code", None) != 404:
            say("no figures to log for now: %s: %s" % (type(error).__name__, error))
        return None


def figures_of(report):
    """Returns the figures that the report has, by the names under which they are logged. A missing one has no entry."""
    efficiency = report.get("scaling_efficiency") or {}
    found = {
        "step_time_seconds": scaled(report.get("period_nanos"), 1e-9),
        "samples_per_second": report.get("throughput"),
        "mfu": (report.get("flops_utilization") or {}).get("model"),
        "scaling_efficiency": efficiency.get("measured"),
        "implied_efficiency": efficiency.get("implied"),
        "exposed_communication_share": exposed_share(report),
        "overlap_ratio": report.get("overlap_ratio"),
        "goodput": (report.get("goodput") or {}).get("ratio"),
    }
    return {"paceline/" + name: value for name, value in found.items() if is_number(value)}


def is_number(value):
    """Returns whether a figure is known. A missing one is an object with the reason."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def scaled(value, factor):
    return value * factor if is_number(value) else None


def exposed_share(report):
    """Returns the share of the steps, over all ranks, in which a rank waits for communication."""
    # Without times of collectives, the ledger has no communication in it.
    if not is_number(report.get("communication_fraction")):
        return None
    ledger = report.get("ledger") or []
    steps = sum(of["step_nanos"] for of in ledger)
    exposed = sum(of["exposed_wait_nanos"] + of["exposed_transfer_nanos"] for of in ledger)
    return exposed / steps if steps else None


def verdict_of(report):
    """Returns the sentence of what cost most time, whether it is over or not, or else what the job spends its time on. None if it is not
    known whether there is a verdict."""
    verdicts = report.get("verdicts") or []
    if not verdicts and report.get("verdicts_missing"):
        return None
    return verdicts[0]["sentence"] if verdicts else report.get("spent") or None
