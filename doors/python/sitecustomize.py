"""Lets `paceline attach` see the collectives of PyTorch that gloo carries, and waits for input.

Python runs this module, which stands before the job's own `sitecustomize`, at its start. It waits until the job imports
`torch.distributed`, and tells libpaceline_agent.so of each collective: when it was issued, and when it was done. The job
computes what it computes without it: nothing is replaced but the functions that make process groups and the step of a
data loader, by ones that call them; all else are hooks that PyTorch has for it. Where something goes wrong here, that is
said once, and that part observes no further.
"""

import atexit
import importlib.machinery
import importlib.util
import os
import sys
from time import monotonic_ns, thread_time_ns

LIBRARY = "PACELINE_AGENT_LIBRARY"
# Ours among the hooks of a process group.
HOOK = 0x9ACE11E
# Of this a collective on the host is done when its work says so, and waiting for it from another thread does nothing else.
CARRIER = "gloo"
# How long a wait is at most; the process waits so long at its exit, if a collective is still under way there.
SLICE_MS = 50
# Collectives that are being issued at one time; threads may issue some each.
MOST_ISSUING = 256
# What a group is called that is not observed, since there are too many.
TOO_MANY = -2

# Numbers of wire's `Function`, and whose bytes are those of this rank: what it gives, or what it gets.
COLLECTIVES = {
    "ALLREDUCE": (4, "input_tensors"),
    "ALLREDUCE_COALESCED": (4, "input_tensors"),
    "ALLGATHER": (2, "input_tensors"),
    "ALLGATHER_BASE": (2, "input_tensors"),
    "ALLGATHER_COALESCED": (2, "input_tensors"),
    "ALLGATHER_INTO_TENSOR_COALESCED": (2, "input_tensors"),
    "REDUCE_SCATTER": (3, "output_tensors"),
    "REDUCE_SCATTER_BASE": (3, "output_tensors"),
    "REDUCE_SCATTER_TENSOR_COALESCED": (3, "output_tensors"),
    "BROADCAST": (0, "input_tensors"),
    "REDUCE": (1, "input_tensors"),
    "ALLTOALL": (8, "input_tensors"),
    "ALLTOALL_BASE": (8, "input_tensors"),
    "BARRIER": (15, "input_tensors"),
}

said = set()


def say(what):
    if what not in said:
        said.add(what)
        try:
            sys.stderr.write("paceline: " + what + "\n")
        except Exception:  # there is none, or nobody reads it
            pass


def guarded(work, *arguments):
    """An observer never fails its host."""
    try:
        return work(*arguments)
    except Exception as error:  # whatever it is, it is not the job's
        give_up(error)
        return None


def give_up(error):
    say("not observing PyTorch any further: %s: %s" % (type(error).__name__, error))


class Imported:
    """Finds a module as all others do, and then calls a function with it."""

    def __init__(self, watched):
        self.watched = watched

    def find_spec(self, name, path=None, target=None):
        if name not in self.watched:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        execute = getattr(getattr(spec, "loader", None), "exec_module", None)
        if execute is not None:

            def execute_and_tell(module):
                execute(module)
                # Some loaders are those of many modules.
                then = self.watched.pop(module.__name__, None)
                if then is not None:
                    guarded(then, module)

            guarded(setattr, spec.loader, "exec_module", execute_and_tell)
        return spec


def library():
    import ctypes

    # Its calls are short and never wait: they keep the interpreter's lock.
    agent = ctypes.PyDLL(os.environ[LIBRARY])
    u64, i64, u32, u8 = ctypes.c_uint64, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint8
    for name, result, arguments in (
        ("group", i64, [u64, u32, u32]),
        ("left", None, [i64]),
        ("issued", u64, [i64, u8, u64, i64, u64]),
        ("ended", None, [i64, u64, i64, u64]),
        ("updated", None, []),
        ("input", None, [i64, i64]),
    ):
        function = getattr(agent, "paceline_pytorch_" + name)
        function.restype, function.argtypes = result, arguments
    return agent


class Groups:
    """Process groups are observed as soon as they are made, by whichever of the public functions."""

    def __init__(self, c10d):
        import weakref

        self.c10d, self.weakref = c10d, weakref
        self.known = weakref.WeakSet()
        # Those that have hooks of ours.
        self.hooked = weakref.WeakSet()
        # Early, so that the job's own run before it.
        atexit.register(guarded, self.take_hooks_back)
        self.uses_nccl = False
        for name in ("init_process_group", "new_group", "split_group"):
            if hasattr(c10d, name):
                setattr(c10d, name, self.observing(getattr(c10d, name)))

    def observing(self, make):
        import functools

        @functools.wraps(make)
        def made(*arguments, **named):
            group = make(*arguments, **named)
            guarded(self.observe, self.c10d.group.WORLD if group is None else group)
            return group

        return made

    def take_hooks_back(self):
        """The interpreter will be taken down. PyTorch keeps groups that nobody destroys until after that, when letting go of
        a hook of Python's ends the process."""
        for group in list(self.hooked):
            group.unregister_pre_hook(HOOK)
            group.unregister_post_hook(HOOK)

    def observe(self, group):
        # A rank that is not in the new group got something else.
        if not isinstance(group, self.c10d.ProcessGroup) or group in self.known:
            return
        self.known.add(group)
        carriers = {of.split(":")[-1] for of in self.c10d.get_backend_config(group).split(",")}
        # Of such a job NCCL's own doors tell, and other groups only agree on this and that.
        self.uses_nccl = self.uses_nccl or "nccl" in carriers
        if self.uses_nccl:
            return
        if carriers != {CARRIER}:
            say("not observing collectives of %s: PyTorch's hooks report those of %s" % ("/".join(sorted(carriers)), CARRIER))
            return
        if not hasattr(group, "register_post_hook"):
            say("not observing collectives that NCCL does not carry: PyTorch tells of them from 2.14 on")
            return
        agent = library()
        name = agent.paceline_pytorch_group(self.number_of(group), group.size(), group.rank())
        if name == TOO_MANY:
            say("not observing process groups beyond those that there are: they are too many")
        if name >= 0:
            hooks = Hooks(agent, name)
            group.register_pre_hook(HOOK, hooks.before)
            group.register_post_hook(HOOK, hooks.after)
            self.hooked.add(group)
            # The group alone has the hooks: with it they go.
            self.weakref.finalize(hooks, hooks.waiter.leave).atexit = False

    def number_of(self, group):
        """The same on all its ranks."""
        import hashlib

        members = "%s of %s" % (group.group_name, self.c10d.get_process_group_ranks(group))
        return int.from_bytes(hashlib.blake2b(members.encode(), digest_size=8).digest(), "little")


class Hooks:
    """What PyTorch calls before and after it issues a collective of one group."""

    def __init__(self, agent, group):
        self.agent, self.group = agent, group
        self.waiter = Waiter(agent, group)
        # By the number of PyTorch's name: asking for the name itself takes longer than all else.
        self.collectives = {}
        # By number: when it was issued, what it is, its bytes, and what finding that out took.
        self.issuing = {}
        self.works = True

    def before(self, told):
        if self.works:
            self.works = self.watched(self.begin, told)

    def after(self, told):
        if self.works:
            self.works = self.watched(self.issue, told)

    @staticmethod
    def watched(work, told):
        """Guarded. But these run all the time, and so may handlers of signals in them: what those raise is the job's."""
        try:
            return work(told)
        except Exception as error:
            trace = error.__traceback__
            while trace is not None:
                # No Python but ours is called here.
                if trace.tb_frame.f_code.co_filename != __file__:
                    raise
                trace = trace.tb_next
            give_up(error)
            return False

    def begin(self, told):
        if self.waiter.stopping:
            return False
        at, used = monotonic_ns(), thread_time_ns()
        if not self.collectives:
            names = type(told.name).__members__
            self.collectives = {int(names[name]): what for name, what in COLLECTIVES.items() if name in names}
        function, of = self.collectives.get(int(told.name), (None, None))
        # Those that failed are never asked for again.
        if len(self.issuing) == MOST_ISSUING:
            self.issuing.clear()
        if function is None:
            return True
        tensors = getattr(told, of)
        if tensors and not tensors[0].is_cpu:
            say("not observing collectives of tensors on a device that NCCL does not carry")
            return True
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        self.issuing[told.op_id] = (at, function, size, thread_time_ns() - used)
        return True

    def issue(self, told):
        used = thread_time_ns()
        at, function, size, spent = self.issuing.pop(told.op_id, (None, None, None, 0))
        work = told.work
        if at is None or work is None:
            return True
        try:
            # Of one that has none, waiting may be part of what it does.
            work.get_future()
        except RuntimeError:
            say("not observing %s, of whose end nobody tells" % told.name.name)
            return True
        name = self.agent.paceline_pytorch_issued(self.group, function, size, at, spent + thread_time_ns() - used)
        if name:
            self.waiter.wait_for(name, work)
        return True


class Waiter:
    """Waits for the collectives of one group, one after the other, on a thread of its own.

    A work's future would call back, but from a thread of the carrier's. That would have to wait for the interpreter's lock,
    and so would the collectives after this one; and a thread of C++ that asks for the lock of an interpreter which is being
    taken down ends the process.
    """

    # All that have not ended.
    running = set()

    def __init__(self, agent, group):
        from datetime import timedelta
        from queue import SimpleQueue
        from threading import Thread

        self.agent, self.group, self.under_way = agent, group, SimpleQueue()
        self.slice = timedelta(milliseconds=SLICE_MS)
        self.stopping = False
        self.thread = Thread(target=guarded, args=(self.run,), name="paceline-wait", daemon=True)
        self.running.add(self)
        self.thread.start()

    def wait_for(self, name, work):
        if not self.stopping:
            self.under_way.put((name, work))

    def stop(self):
        self.stopping = True
        self.under_way.put((0, None))

    def leave(self):
        """The group is no more."""
        self.stop()
        self.agent.paceline_pytorch_left(self.group)

    @classmethod
    def stop_all(cls):
        waiters = list(cls.running)
        for waiter in waiters:
            waiter.stop()
        for waiter in waiters:
            waiter.thread.join()

    def run(self):
        used = 0
        try:
            while not self.stopping:
                name, work = self.under_way.get()
                while not self.stopping and not self.is_done(work):
                    pass
                if not self.stopping:
                    at, before, used = monotonic_ns(), used, thread_time_ns()
                    self.agent.paceline_pytorch_ended(self.group, name, at, used - before)
                # It holds the job's tensors, and the next one may be long in coming.
                work = None
        finally:
            self.stopping = True
            while not self.under_way.empty():
                self.under_way.get()
            self.running.discard(self)

    def is_done(self, work):
        """Waits for a slice of time at most."""
        asked = monotonic_ns()
        try:
            work.wait(self.slice)
        except RuntimeError:
            if work.is_completed():
                # It failed, which is the job's to know.
                return True
            if monotonic_ns() - asked < SLICE_MS * 500_000:
                # That was no wait.
                raise
            return False
        return True


def observe_input(dataloader):
    """The main thread waits for a batch in one place, whatever the data loader is."""
    import functools
    from threading import current_thread, main_thread

    agent, iterator = library(), dataloader._BaseDataLoaderIter
    following = iterator.__next__

    @functools.wraps(following)
    def timed(self):
        begin = monotonic_ns()
        try:
            return following(self)
        finally:
            if current_thread() is main_thread():
                agent.paceline_pytorch_input(begin, monotonic_ns())

    iterator.__next__ = timed


def observe_updates(optimizer):
    """What is reduced after an update is of the next step."""
    if not hasattr(optimizer, "register_optimizer_step_post_hook"):
        return
    # It is not whole yet.
    agent, torch = library(), sys.modules["torch"]

    def updated(*_):
        is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
        # A compiled update stays in one piece, and tells nothing. Before PyTorch 2.3 nobody says whether it is compiled.
        if is_compiling is not None and not is_compiling():
            agent.paceline_pytorch_updated()

    optimizer.register_optimizer_step_post_hook(updated)


def run_the_jobs_own():
    """The `sitecustomize` that this one stands before, if there is any."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get(LIBRARY):
    # Before all others, so that it runs after them.
    atexit.register(Waiter.stop_all)
    sys.meta_path.insert(
        0,
        Imported(
            {
                "torch.distributed.distributed_c10d": Groups,
                "torch.optim.optimizer": observe_updates,
                "torch.utils.data.dataloader": observe_input,
            }
        ),
    )
run_the_jobs_own()
