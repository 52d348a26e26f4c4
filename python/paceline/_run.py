"""The id of the run. If none is given, rank 0 makes it, and the others read it from the store of the process group."""

import os
import re
import sys
import time

from paceline._errors import say

VARIABLE = "PACELINE_RUN_ID"
# The variables from which the agent takes an id, with its form: all of one form must be set.
GIVEN = (
    ((VARIABLE,), "%s"),
    (("TORCHELASTIC_RUN_ID",), "%s"),
    (("SLURM_JOB_ID", "SLURM_STEP_ID"), "slurm-%s.%s"),
)
# torchrun's default is "none".
NO_ID = ("", "none")
KEY = "paceline/run"
# How long a rank waits for rank 0. Both have met in the process group by then.
PATIENCE_SECONDS = 5.0
POLL_SECONDS = 0.01


def given():
    """Returns the id that the environment gives the run, as the agent takes it; None without one."""
    for names, form in GIVEN:
        values = tuple(os.environ.get(name, "") for name in names)
        if not any(value in NO_ID for value in values):
            return form % values
    return None


def agree(c10d):
    """Sets the run's id in the environment once the default process group exists. Returns whether there is an id."""
    if given() is not None:
        return True
    find = getattr(c10d, "_get_default_store", None)
    store = find() if find is not None and c10d.is_initialized() else None
    if store is None:
        return False
    if c10d.get_rank() == 0:
        store.set(KEY, new_id())
    elif not is_set(store):
        say("not observing this rank: rank 0 has given the run no id within %.0f s" % PATIENCE_SECONDS)
        return False
    os.environ[VARIABLE] = store.get(KEY).decode()
    return True


def is_set(store):
    until = time.monotonic() + PATIENCE_SECONDS
    while not store.check([KEY]):
        if time.monotonic() > until:
            return False
        time.sleep(POLL_SECONDS)
    return True


def new_id():
    """Returns an id like those of `paceline run`: name, time, and four digits that tell runs of one second apart."""
    name = os.environ.get("PACELINE_RUN_NAME") or os.path.splitext(os.path.basename(sys.argv[0] or ""))[0]
    safe = re.sub(r"[^A-Za-z0-9_.-]", "-", name).lstrip(".-")[:40] or "run"
    return "%s-%s-%s" % (safe, time.strftime("%Y%m%d-%H%M%S", time.gmtime()), os.urandom(2).hex())
