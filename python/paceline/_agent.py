"""The agent's library in this process."""

import functools
import os
import sys

from paceline._errors import guarded

LIBRARY = "PACELINE_AGENT_LIBRARY"


# From this variable, NCCL learns which library to report its collectives to.
NCCL = "NCCL_PROFILER_PLUGIN"


def library():
    """Returns the path of the agent's library."""
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libpaceline_attach.so")
    return os.environ.get(LIBRARY) or own


def offer_to_nccl():
    """Lets NCCL load the agent's library, unless another profiler is set."""
    os.environ.setdefault(NCCL, library())


def observe_exits():
    """Reports the end of the process by `os._exit`, which runs no exit handler. Scripts end so where a library hangs at exit."""
    leave = os._exit

    @functools.wraps(leave)
    def leaves(status):
        try:
            trace = sys.modules.get("paceline._trace")
            if trace is not None:
                guarded(trace.finish)
            if agent.cache_info().currsize:
                guarded(agent().exits, status)
        finally:
            leave(status)

    os._exit = leaves


@functools.lru_cache(maxsize=None)
def agent():
    """Returns the agent. It starts to observe when the job creates its first process group."""
    from paceline import _native

    return _native.Agent(library())
