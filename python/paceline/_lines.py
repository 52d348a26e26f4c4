"""Reports in which lines of the job's own code it writes checkpoints, evaluates, compiles and waits for input."""

import sys

from paceline._agent import agent

# Parts of the paths of files that are not the job's own code, as in `analysis/src/stacks.rs`.
LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen ", "/paceline/_")
# The largest number of places that are remembered. Beyond it, further lines are not reported.
MOST_PLACES = 64
# The largest number of frames that are looked at.
MOST_FRAMES = 256

# The places from which a phase was begun often, and the lines that were reported.
places, reported = set(), set()


def report(phase, frame):
    """Reports the innermost line of the job's own code that led to a frame, once for each phase."""
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        if not any(part in code.co_filename for part in LIBRARIES):
            line = phase, code.co_filename, frame.f_lineno
            if line not in reported and len(reported) < MOST_PLACES:
                reported.add(line)
                # As in sampled stacks. Before Python 3.11, code does not know its class.
                name = getattr(code, "co_qualname", code.co_name)
                agent().line(phase, name, code.co_filename, frame.f_lineno or 0)
            return
        frame = frame.f_back


def report_often(phase, frame):
    """Does so for a phase that begins in every step: a place that was seen before costs one look."""
    place = phase, id(frame.f_code), frame.f_lasti
    if place not in places and len(places) < MOST_PLACES:
        places.add(place)
        report(phase, frame)
