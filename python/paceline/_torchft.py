"""Observes the process groups of torchft, which it makes itself whenever a replica group joins or leaves.

Each replica group of one process is a rank: its number among those that took part when it was first observed. Replica groups
meet in the quorum of each step before they average gradients, so the quorum is where a late one is waited for. It is
recorded as a barrier.
"""

import atexit
import functools
import hashlib
import sys
import weakref
from time import monotonic_ns

from paceline._agent import agent
from paceline._errors import guarded, say
from paceline._groups import HOOK
from paceline._native import Hooks
from paceline._waiter import Waiter
from paceline._thread import is_training
from paceline._waits import begin_wait, end_wait, observe_waits

# The code of a barrier in the agent's library.
BARRIER = 15
# The groups that have this module's hooks.
hooked = weakref.WeakSet()
# By torchft's group: the agent's index of the group that it uses now.
names = weakref.WeakKeyDictionary()
# By manager: the quorum that it waits for, as the agent's index of the group and the number of the barrier.
quorums = weakref.WeakKeyDictionary()


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
    names[replicas] = name
    observe_waits(sys.modules["torch.distributed"].Work)
    weakref.finalize(hooks, waiter.leave).atexit = False


def observe_quorums(manager):
    """Observes the module `torchft.manager`."""
    manager = manager.Manager
    start, wait = manager.start_quorum, manager.wait_quorum

    @functools.wraps(start)
    def started(self, *arguments, **named):
        guarded(begin_quorum, self)
        return start(self, *arguments, **named)

    @functools.wraps(wait)
    def waited(self):
        interrupted = guarded(begin_wait) if is_training() else ()
        try:
            return wait(self)
        finally:
            guarded(end_quorum, self)
            guarded(end_wait, None, interrupted)

    manager.start_quorum, manager.wait_quorum = started, waited


def begin_quorum(manager):
    name = names.get(manager._pg)
    if name is not None:
        quorums[manager] = name, agent().issued(name, BARRIER, 0, monotonic_ns(), 0)


def end_quorum(manager):
    name, barrier = quorums.pop(manager, (None, 0))
    if barrier:
        agent().ended(name, barrier, monotonic_ns(), 0)


def number_of(replicas, world_size):
    """Returns the number of the group, which is the same in all replica groups."""
    members = "torchft quorum %s of %s" % (replicas._quorum_id, world_size)
    return int.from_bytes(hashlib.blake2b(members.encode(), digest_size=8).digest(), "little")


def take_hooks_back():
    for group in list(hooked):
        group.unregister_pre_hook(HOOK)
        group.unregister_post_hook(HOOK)
