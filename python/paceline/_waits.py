"""Observes the job's own waits for collectives.

A wait is subtracted from the phase that it interrupts: a forward pass that waits for parameters, as in FSDP, does not compute. In a job
whose passes are not observed, such as one that reduces its gradients itself, the waits show when it does not compute. Some collectives
end with the wait: waiting for gloo's reduce-scatter copies its result, so a second wait, from a thread of ours, would overwrite what
the job has made of it since.
"""

import functools
from time import monotonic_ns

from paceline._agent import agent
from paceline._errors import guarded
from paceline._native import Phase
from paceline._thread import is_training
from paceline._waiter import of_the_job

# The code of the phase in the agent's library.
WAIT = 9

# The phases in which the job may wait.
phases = []


def interrupt(*of):
    """Lets waits interrupt these phases from now on."""
    phases.extend(of)


@functools.lru_cache(maxsize=None)
def observe_waits(work):
    """Observes the waits of a class of PyTorch's work from now on."""
    wait, phase = work.wait, Phase(agent(), WAIT)

    @functools.wraps(wait)
    def waited(self, *arguments, **named):
        if not guarded(is_training):
            return wait(self, *arguments, **named)
        of = guarded(interrupted)
        # Where passes are observed, that they end and begin again says the same.
        if not phases:
            guarded(phase.begin)
        try:
            return wait(self, *arguments, **named)
        finally:
            guarded(phase.end)
            guarded(end_wait, self, of)

    work.wait = waited


def interrupted():
    """Ends the phases in which the job is, and returns them."""
    return [phase for phase in phases if phase.end()]


def resumed(of):
    """Begins phases that were interrupted."""
    for phase in of:
        phase.begin()


def end_wait(work, of):
    for one in [one for one in of_the_job if one[2] is work]:
        of_the_job.remove(one)
        group, collective, _ = one
        agent().ended(group, collective, monotonic_ns(), 0)
    resumed(of or ())
