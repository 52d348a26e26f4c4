"""Observes the process groups of torchft, which it makes itself whenever a replica group joins or leaves.

Each replica group of one process is a rank: its number among those that took part when it was first observed.
"""

import atexit
import functools
import hashlib
import sys
import weakref

from paceline._agent import agent
from paceline._errors import guarded, say
from paceline._groups import HOOK
from paceline._native import Hooks
from paceline._waiter import Waiter
from paceline._waits import observe_waits

# The groups that have this module's hooks.
hooked = weakref.WeakSet()


def observe_groups(process_group):
    """Observes the module `torchft.process_group`."""
    gloo = process_group.ProcessGroupGloo
    make = gloo._create_pg

    @functools.wraps(make)
    def made(self, store, rank, world_size):
        group = make(self, store, rank, world_size)
        guarded(observe, self, group, rank, world_size)
        return group

    gloo._create_pg = made
    # PyTorch must not release a hook after the interpreter was finalized.
    atexit.register(guarded, take_hooks_back)


def observe(replicas, group, rank, world_size):
    # A group that is alone has nothing to average with.
    if world_size == 1:
        return
    if (replicas._group_world_size or 1) > 1:
        say("not observing torchft: its replica groups have several processes")
        return
    if not hasattr(group, "register_post_hook"):
        say("not observing collectives of gloo: this needs PyTorch 2.14 or later")
        return
    name = agent().group(number_of(replicas, world_size), world_size, rank)
    if name < 0:
        return
    waiter = Waiter(agent(), name)
    hooks = Hooks(agent(), name, waiter, say)
    group.register_pre_hook(HOOK, hooks.before)
    group.register_post_hook(HOOK, hooks.after)
    hooked.add(group)
    observe_waits(sys.modules["torch.distributed"].Work)
    weakref.finalize(hooks, waiter.leave).atexit = False


def number_of(replicas, world_size):
    """Returns the number of the group, which is the same in all replica groups."""
    members = "torchft quorum %s of %s" % (replicas._quorum_id, world_size)
    return int.from_bytes(hashlib.blake2b(members.encode(), digest_size=8).digest(), "little")


def take_hooks_back():
    for group in list(hooked):
        group.unregister_pre_hook(HOOK)
        group.unregister_post_hook(HOOK)
