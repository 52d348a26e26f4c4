"""Observes PyTorch in this process.

The job computes the same results with it and without it. Where Python, PyTorch or a framework has no hook, a function is replaced
by one that calls the original: the functions that create process groups, wait for a collective of gloo, get the next batch,
write a checkpoint, evaluate, start and stop a profiler, or end the process at once, the forward pass of a DDP module, and the
exchange of its buffers, `Module.train`, the start of an FSDP module, the step of DeepSpeed's engine, and the quorum of torchft. Everything
else uses hooks that they provide. When something fails here, the module reports it once and stops observing that part.
"""

import atexit
import sys

from paceline._agent import observe_exits, offer_to_nccl
from paceline._errors import guarded
from paceline._imports import after_import

started = False


def start():
    """Observes the modules of PyTorch that are imported, and the others once they are. Returns True."""
    global started
    if not started:
        started = True
        offer_to_nccl()
        observe_exits()
        # Registered before all other exit handlers, so that it runs after them.
        atexit.register(stop_waiters)
        atexit.register(guarded, report_failure)
        after_import(
            {
                "torch": observe_pauses,
                "torch.autograd.profiler": observe_profilers,
                "torch.version": observe_versions,
                "torch.distributed.distributed_c10d": observe_groups,
                "torch.nn.parallel.distributed": observe_modules,
                "torch.optim.optimizer": observe_updates,
                "torch.utils.data.dataloader": observe_input,
                "torch.distributed.fsdp._fully_shard._fsdp_state": observe_fsdp,
                "deepspeed.runtime.engine": observe_deepspeed,
                "torchft.process_group": observe_torchft,
                "torchft.manager": observe_quorums,
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


def observe_profilers(profiler):
    from paceline import _trace

    _trace.observe_profilers(profiler)


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


def observe_fsdp(state):
    from paceline import _fsdp

    _fsdp.observe_states(state)


def observe_deepspeed(engine):
    from paceline import _deepspeed

    _deepspeed.observe_engine(engine)


def observe_torchft(process_group):
    from paceline import _torchft

    _torchft.observe_groups(process_group)


def observe_quorums(manager):
    from paceline import _torchft

    _torchft.observe_quorums(manager)


def report_failure():
    if getattr(sys, "last_value", None) is not None:
        from paceline import _failure

        _failure.report()


def stop_waiters():
    waiter = sys.modules.get("paceline._waiter")
    if waiter is not None:
        waiter.stop_all()
