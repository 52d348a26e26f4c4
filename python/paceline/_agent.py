"""The agent's library in this process."""

import functools
import os

from paceline import _native

LIBRARY = "PACELINE_AGENT_LIBRARY"


@functools.lru_cache(maxsize=None)
def agent():
    """Returns the agent. It starts to observe when the job creates its first process group."""
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libpaceline_attach.so")
    return _native.Agent(os.environ.get(LIBRARY) or own)
