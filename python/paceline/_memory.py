"""Reports what PyTorch's caching allocator counts for the CUDA device of the thread that trains."""

import sys
import time

from paceline._agent import agent
from paceline._errors import guarded

# The time between two reports, in seconds. A report does not use the device.
EVERY = 1.0

due = 0.0


def look():
    """Reports the figures if a second has passed since the last report. Called where a step ends."""
    global due
    now = time.monotonic()
    if now >= due:
        due = now + EVERY
        guarded(report)


def report():
    cuda = sys.modules["torch"].cuda
    # In a job that does not use CUDA, the next call would initialize it.
    if not cuda.is_initialized():
        return
    found = cuda.memory_stats_as_nested_dict()
    if found:
        agent().memory(cuda.current_device(), figures(found))


def figures(found):
    """Returns the figures in the order of `attach/src/memory.rs`."""

    def of_all(name, which="current"):
        return found.get(name, {}).get("all", {}).get(which, 0)

    return (
        of_all("allocated_bytes"),
        of_all("allocated_bytes", "peak"),
        of_all("reserved_bytes"),
        of_all("inactive_split_bytes"),
        found.get("num_alloc_retries", 0),
        found.get("num_ooms", 0),
    )
