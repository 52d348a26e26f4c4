"""Reports the exception that ends the process."""

import os
import sys
import traceback

from paceline._agent import agent

# Parts of the paths of code that is not the user's.
LIBRARIES = "/site-packages/", "/dist-packages/", "/lib/python", "<frozen ", "/paceline/_"
# The longest part of a message that is reported, in characters.
MOST = 200


def report():
    """Reports the exception that the interpreter printed last, if any. Called at exit; a successful one ignores it."""
    error = getattr(sys, "last_value", None)
    # A process that is not observed has no agent.
    if error is not None and agent.cache_info().currsize:
        agent().fails(words(error))


def words(error):
    """Returns an exception's type, the innermost line of the user's code, and the first line of its message."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, kind.__qualname__)
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [frame for frame in frames if not any(part in frame[0] for part in LIBRARIES)]
    at = "".join(" at %s:%d" % (os.path.basename(path), line) for path, line in (own or frames)[-1:])
    message = (str(error).strip().splitlines() or [""])[0].replace("\0", " ")
    message = message.rstrip(".") if len(message) <= MOST else message[:MOST] + "..."
    return name + at + (": " + message if message else "")
