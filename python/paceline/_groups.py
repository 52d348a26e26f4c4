"""Observes collectives of process groups, by hooks that PyTorch calls before and after it issues one."""

import atexit
import functools
import hashlib
import sys
import weakref

from paceline import _buckets
from paceline._agent import agent
from paceline._errors import guarded, say
from paceline._native import Hooks
from paceline._run import agree
from paceline._waiter import Waiter
from paceline._waits import observe_waits

# The id of this module's hooks in a process group.
HOOK = 0x9ACE11E
# The observed backend. Its work reports when a collective of host tensors is done, and waiting for it from another
# thread has no other effect.
CARRIER = "gloo"
# What PyTorch must offer.
METHODS = "register_pre_hook", "register_post_hook", "unregister_pre_hook", "unregister_post_hook"
# The agent's answer for a group that is not observed because there are too many groups.
TOO_MANY = -2

# The groups that have this module's hooks.
hooked = weakref.WeakSet()


class Groups:
    """Observes each process group once a public function has created it."""

    def __init__(self, c10d):
        self.c10d = c10d
        self.known = weakref.WeakSet()
        # Registered early, so that the job's own exit handlers run first.
        atexit.register(guarded, take_hooks_back)
        self.uses_nccl = False
        self.has_run_id = False
        for name in ("init_process_group", "new_group", "split_group"):
            if hasattr(c10d, name):
                replace(name, getattr(c10d, name), self.observing)
        for group in list(getattr(getattr(c10d, "_world", None), "pg_map", ())):
            guarded(self.observe, group)

    def observing(self, make):
        @functools.wraps(make)
        def made(*arguments, **named):
            group = make(*arguments, **named)
            guarded(self.observe_made, group)
            return group

        return made

    def observe_made(self, group):
        self.observe(self.c10d.group.WORLD if group is None else group)

    def observe(self, group):
        # A rank outside the new group received a placeholder.
        if not isinstance(group, self.c10d.ProcessGroup) or group in self.known:
            return
        self.known.add(group)
        if not self.has_run_id:
            self.has_run_id = agree(self.c10d)
            if not self.has_run_id:
                return
        carriers = {of.split(":")[-1] for of in self.c10d.get_backend_config(group).split(",")}
        # NCCL's own hooks observe such a job. Its other groups only coordinate.
        self.uses_nccl = self.uses_nccl or "nccl" in carriers
        if self.uses_nccl:
            return
        if carriers != {CARRIER}:
            say("not observing collectives of %s: PyTorch's hooks report only %s" % ("/".join(sorted(carriers)), CARRIER))
            return
        ways = {"process-group hooks": offers_hooks(group), "record functions": reports_gloo()}
        if not any(ways.values()):
            say("not observing collectives of gloo: this needs PyTorch 2.4 or later, on x86-64")
            return
        agent().software("gloo observed by", " and ".join(way for way, is_there in ways.items() if is_there))
        members = "%s of %s" % (group.group_name, self.c10d.get_process_group_ranks(group))
        name = agent().group(number_of(members), group.size(), group.rank())
        if name == TOO_MANY:
            say("not observing further process groups: there are too many")
        if name < 0:
            return
        has_hooks, has_functions = ways.values()
        if has_hooks:
            hook(group, name)
        else:
            weakref.finalize(group, agent().left, name).atexit = False
        if has_functions:
            _buckets.observe(group, name, has_hooks)


def offers_hooks(group):
    """Returns whether PyTorch lets functions be called before and after each collective of a group, and taken back."""
    return all(hasattr(group, method) for method in METHODS)


def hook(group, name):
    """Observes the collectives of a group. `name` is the agent's index of the group."""
    waiter = Waiter(agent(), name)
    hooks = Hooks(agent(), name, waiter, say)
    # First, so that the hooks are taken back even if one of these calls fails.
    hooked.add(group)
    group.register_pre_hook(HOOK, hooks.before)
    group.register_post_hook(HOOK, hooks.after)
    observe_waits(sys.modules["torch.distributed"].Work)
    # Only the group owns the hooks, so they are finalized with it.
    weakref.finalize(hooks, waiter.leave).atexit = False


def take_hooks_back():
    """Removes all hooks before the interpreter is finalized.

    PyTorch holds groups that the job does not destroy until after that, when releasing a Python hook ends the process.
    """
    for group in list(hooked):
        guarded(group.unregister_pre_hook, HOOK)
        guarded(group.unregister_post_hook, HOOK)


def number_of(members):
    """Returns the number of a group, given words about its members that are the same on all its ranks."""
    return int.from_bytes(hashlib.blake2b(members.encode(), digest_size=8).digest(), "little")


def reports_gloo():
    """Returns whether the agent's library observes what gloo runs. Its interface is known of these releases only."""
    release = tuple(int(part) for part in sys.modules["torch"].__version__.split(".")[:2])
    return (2, 4) <= release <= (2, 15) and agent().observes_gloo()


def replace(name, original, by):
    """Replaces a function in each module that has imported it by its name."""
    replacement = by(original)
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, replacement)
