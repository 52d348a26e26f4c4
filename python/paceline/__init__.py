"""Paceline observes data-parallel training: which rank is late, why, and what that costs.

Call :func:`watch` anywhere before training. ``paceline run torchrun ...`` and ``paceline attach`` do it without a line
in the script.
"""

import os

__all__ = ["watch"]


def watch(server=None, name=None, run=None):
    """Observes this process's training and reports to a server.

    The job computes the same results with it and without it. The call may come before or after ``import torch``, and
    before or after the process groups and the model are created, at the same place on every rank. A second call changes
    nothing, and neither does a call under ``paceline attach``.

    :param server: The server's address, for instance ``http://127.0.0.1:8080``. Default: the variable
        ``PACELINE_SERVER``. Without either, nothing is observed.
    :param name: The name of the run, by which it is compared with others. Default: the variable ``PACELINE_RUN_NAME``,
        or else the name of the script.
    :param run: The id of the run, equal on all ranks. Default: the variable ``PACELINE_RUN_ID``, torchrun's
        ``TORCHELASTIC_RUN_ID``, Slurm's job, or else an id that rank 0 makes.
    :returns: Whether this process is observed from now on.
    """
    if is_off():
        return False
    given = {"PACELINE_SERVER": server, "PACELINE_RUN_NAME": name, "PACELINE_RUN_ID": run}
    os.environ.update({variable: value for variable, value in given.items() if value is not None})
    if not os.environ.get("PACELINE_SERVER"):
        return False
    from paceline._errors import guarded

    return guarded(start) is True


def start():
    from paceline import _observe

    return _observe.start()


def is_off():
    """Returns whether ``PACELINE=off`` switches the observation off."""
    return os.environ.get("PACELINE", "").strip().lower() in ("off", "0", "false", "no")
