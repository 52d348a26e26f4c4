"""Observes PyTorch in this process.

The job computes the same results with it and without it. Only the functions that create process groups and the step of a
data loader are replaced, by functions that call the original. Everything else uses hooks that PyTorch provides. When
something fails here, the module reports it once and stops observing that part.
"""

import atexit
import sys

from paceline._agent import offer_to_nccl
from paceline._errors import guarded
from paceline._imports import after_import

started = False


def start():
    """Observes the modules of PyTorch that are imported, and the others once they are. Returns True."""
    global started
    if not started:
        started = True
        offer_to_nccl()
        # Registered before all other exit handlers, so that it runs after them.
        atexit.register(stop_waiters)
        after_import(
            {
                "torch": observe_pauses,
                "torch.version": observe_versions,
                "torch.distributed.distributed_c10d": observe_groups,
                "torch.nn.parallel.distributed": observe_modules,
                "torch.optim.optimizer": observe_updates,
                "torch.utils.data.dataloader": observe_input,
            }
        )
    return True


# A process that does not use PyTorch loads none of the modules below.


def observe_groups(c10d):
    from paceline._groups import Groups

    Groups(c10d)


def observe_pauses(_):
    from paceline import _pauses

    after_import(_pauses.observers())
    guarded(_pauses.observe_collections)


def observe_versions(version):
    from paceline import _phases

    _phases.observe_versions(version)


def observe_modules(distributed):
    from paceline import _phases

    _phases.observe_modules(distributed)


def observe_updates(optimizer):
    from paceline import _phases

    _phases.observe_updates(optimizer)


def observe_input(dataloader):
    from paceline import _phases

    _phases.observe_input(dataloader)


def stop_waiters():
    waiter = sys.modules.get("paceline._waiter")
    if waiter is not None:
        waiter.stop_all()
