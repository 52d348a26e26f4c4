"""Observes the process groups of torchft, which it makes itself whenever a replica group joins or leaves.

Each replica group of one process is a rank: its number among those that took part when it was first observed. Replica groups
meet in the quorum of each step before they average gradients, so the quorum is where a late one is waited for. It is
recorded as a barrier.
"""

import functools
import weakref
from time import monotonic_ns

from paceline._agent import agent
from paceline._errors import guarded, say
from paceline._groups import hook, number_of, offers_hooks
from paceline._thread import is_training
from paceline._waits import end_wait, interrupted

# The code of a barrier in the agent's library.
BARRIER = 15
# By torchft's group: the agent's index of the group that it uses now.
names = weakref.WeakKeyDictionary()
# By manager: the quorum that it waits for, as the agent's index of the group and the number of the barrier.
quorums = weakref.WeakKeyDictionary()


def observe_groups(process_group):
    """Observes the module `torchft.process_group`."""
    gloo = process_group.ProcessGroupGloo
    make = gloo._create_pg

    @functools.wraps(make)
    def made(self, *arguments, **named):
        group = make(self, *arguments, **named)
        guarded(observe, self, group)
        return group

    gloo._create_pg = made


def observe(replicas, group):
    # A group that is alone has nothing to average with.
    if group.size() == 1:
        return
    if (replicas._group_world_size or 1) > 1:
        say("not observing torchft: its replica groups have several processes")
        return
    if not offers_hooks(group):
        say("not observing collectives of gloo: this needs PyTorch 2.14 or later")
        return
    # The same in all replica groups.
    members = "torchft quorum %s of %s" % (replicas._quorum_id, group.size())
    name = agent().group(number_of(members), group.size(), group.rank())
    if name < 0:
        return
    hook(group, name)
    names[replicas] = name


def observe_quorums(manager):
    """Observes the module `torchft.manager`."""
    manager = manager.Manager
    start, wait = manager.start_quorum, manager.wait_quorum

    @functools.wraps(start)
    def started(self, *arguments, **named):
        guarded(begin_quorum, self)
        return start(self, *arguments, **named)

    @functools.wraps(wait)
    def waited(self, *arguments, **named):
        of = guarded(interrupted) if guarded(is_training) else ()
        try:
            return wait(self, *arguments, **named)
        finally:
            guarded(end_quorum, self)
            guarded(end_wait, None, of)

    manager.start_quorum, manager.wait_quorum = started, waited


def begin_quorum(manager):
    name = names.get(manager._pg)
    if name is not None:
        quorums[manager] = name, agent().issued(name, BARRIER, 0, monotonic_ns(), 0)


def end_quorum(manager):
    name, barrier = quorums.pop(manager, (None, 0))
    if barrier:
        agent().ended(name, barrier, monotonic_ns(), 0)
