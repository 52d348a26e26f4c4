"""The agent's library in this process."""

import functools
import os

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


@functools.lru_cache(maxsize=None)
def agent():
    """Returns the agent. It starts to observe when the job creates its first process group."""
    from paceline import _native

    return _native.Agent(library())
