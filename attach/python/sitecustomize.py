"""Reports PyTorch's collectives over gloo, optimizer updates and waits for input to libpaceline_attach.so.

`paceline attach` puts this module in front of the job's own `sitecustomize`, so Python runs it at startup. It waits
until the job imports the modules it observes, and then reports when each collective was issued and when it was done.

The job computes the same results with it and without it. Only the functions that create process groups and the step of
a data loader are replaced, by functions that call the original. Everything else uses hooks that PyTorch provides. When
something fails here, the module reports it once and stops observing that part.
"""

import atexit
import importlib.machinery
import importlib.util
import os
import sys
from time import monotonic_ns, thread_time_ns

LIBRARY = "PACELINE_AGENT_LIBRARY"
# The id of this module's hooks in a process group.
HOOK = 0x9ACE11E
# The observed backend. Its work reports when a collective of host tensors is done, and waiting for it from another
# thread has no other effect.
CARRIER = "gloo"
# The longest single wait, in milliseconds. At exit, the process waits up to this long for a collective in flight.
SLICE_MS = 50
# The largest number of collectives that are being issued at the same time. Several threads may issue some.
MOST_ISSUING = 256
# The agent's answer for a group that is not observed because there are too many groups.
TOO_MANY = -2

# By PyTorch's name: the code of wire's `Function`, and the tensors whose bytes are this rank's, its inputs or its
# outputs.
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
        except Exception:  # no stderr, or nothing reads it
            pass


def guarded(work, *arguments):
    """Calls `work` and reports its errors: an observer never fails its host."""
    try:
        return work(*arguments)
    except Exception as error:  # any error here is ours, not the job's
        give_up(error)
        return None


def give_up(error):
    say("not observing PyTorch any further: %s: %s" % (type(error).__name__, error))


class Imported:
    """Finds a module like the other finders do, and calls a function with it after its import."""

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
                # Some loaders load many modules.
                then = self.watched.pop(module.__name__, None)
                if then is not None:
                    guarded(then, module)

            guarded(setattr, spec.loader, "exec_module", execute_and_tell)
        return spec


def library():
    import ctypes

    # The calls are short and never block, so they hold the interpreter's lock.
    agent = ctypes.PyDLL(os.environ[LIBRARY])
    u64, i64, u32, u8 = ctypes.c_uint64, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint8
    for name, result, arguments in (
        ("group", i64, [u64, u32, u32]),
        ("left", None, [i64]),
        ("issued", u64, [i64, u8, u64, i64, u64]),
        ("ended", None, [i64, u64, i64, u64]),
        ("updated", None, []),
        ("input", None, [i64, i64]),
        ("software", None, [ctypes.c_char_p, ctypes.c_char_p]),
    ):
        function = getattr(agent, "paceline_pytorch_" + name)
        function.restype, function.argtypes = result, arguments
    return agent


class Groups:
    """Observes each process group once a public function has created it."""

    def __init__(self, c10d):
        import weakref

        self.c10d, self.weakref = c10d, weakref
        self.known = weakref.WeakSet()
        # The groups that have this module's hooks.
        self.hooked = weakref.WeakSet()
        # Registered early, so that the job's own exit handlers run first.
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
        """Removes all hooks before the interpreter is finalized.

        PyTorch holds groups that the job does not destroy until after that, when releasing a Python hook ends the
        process.
        """
        for group in list(self.hooked):
            group.unregister_pre_hook(HOOK)
            group.unregister_post_hook(HOOK)

    def observe(self, group):
        # A rank outside the new group received a placeholder.
        if not isinstance(group, self.c10d.ProcessGroup) or group in self.known:
            return
        self.known.add(group)
        carriers = {of.split(":")[-1] for of in self.c10d.get_backend_config(group).split(",")}
        # NCCL's own hooks observe such a job. Its other groups only coordinate.
        self.uses_nccl = self.uses_nccl or "nccl" in carriers
        if self.uses_nccl:
            return
        if carriers != {CARRIER}:
            say("not observing collectives of %s: PyTorch's hooks report only %s" % ("/".join(sorted(carriers)), CARRIER))
            return
        if not hasattr(group, "register_post_hook"):
            say("not observing collectives of gloo: this needs PyTorch 2.14 or later")
            return
        agent = library()
        name = agent.paceline_pytorch_group(self.number_of(group), group.size(), group.rank())
        if name == TOO_MANY:
            say("not observing further process groups: there are too many")
        if name >= 0:
            hooks = Hooks(agent, name)
            group.register_pre_hook(HOOK, hooks.before)
            group.register_post_hook(HOOK, hooks.after)
            self.hooked.add(group)
            # Only the group owns the hooks, so they are finalized with it.
            self.weakref.finalize(hooks, hooks.waiter.leave).atexit = False

    def number_of(self, group):
        """Returns the group's number, which is the same on all its ranks."""
        import hashlib

        members = "%s of %s" % (group.group_name, self.c10d.get_process_group_ranks(group))
        return int.from_bytes(hashlib.blake2b(members.encode(), digest_size=8).digest(), "little")


class Hooks:
    """The functions that PyTorch calls before and after it issues a collective of one group."""

    def __init__(self, agent, group):
        self.agent, self.group = agent, group
        self.waiter = Waiter(agent, group)
        # By the value of PyTorch's enum: reading the name costs more than everything else here.
        self.collectives = {}
        # By operation id: time of issue, function, bytes, and the processor time spent on finding them out.
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
        """Calls `work` and reports its errors, except for errors that a signal handler of the job raised meanwhile."""
        try:
            return work(told)
        except Exception as error:
            trace = error.__traceback__
            while trace is not None:
                # `work` calls no other Python code, so other code belongs to a signal handler.
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
        # Operations that failed never reach `issue`.
        if len(self.issuing) == MOST_ISSUING:
            self.issuing.clear()
        if function is None:
            return True
        tensors = getattr(told, of)
        if tensors and not tensors[0].is_cpu:
            say("not observing collectives of gloo on tensors in device memory")
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
            # Without a future, waiting may be part of the operation.
            work.get_future()
        except RuntimeError:
            say("not observing %s: PyTorch does not report its end" % told.name.name)
            return True
        name = self.agent.paceline_pytorch_issued(self.group, function, size, at, spent + thread_time_ns() - used)
        if name:
            self.waiter.wait_for(name, work)
        return True


class Waiter:
    """Waits for the collectives of one group, one after the other, on its own thread.

    The callback of a future would run on gloo's thread. It would have to wait for the interpreter's lock, and so would
    the collectives after it. A C++ thread that requests the lock while the interpreter finalizes ends the process.
    """

    # The waiters whose thread has not ended.
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
        """Ends the wait for a group that was destroyed."""
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
                # The work holds the job's tensors, and the next one may be far off.
                work = None
        finally:
            self.stopping = True
            while not self.under_way.empty():
                self.under_way.get()
            self.running.discard(self)

    def is_done(self, work):
        """Returns whether the work is done, after waiting for one slice of time at most."""
        asked = monotonic_ns()
        try:
            work.wait(self.slice)
        except RuntimeError:
            if work.is_completed():
                # The collective failed, which is for the job to handle.
                return True
            if monotonic_ns() - asked < SLICE_MS * 500_000:
                # The call failed without waiting.
                raise
            return False
        return True


def observe_input(dataloader):
    """Reports waits of the main thread for a batch, at the one place that all data loaders share."""
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


def observe_versions(version):
    """Reports the versions of Python, PyTorch, and the CUDA that PyTorch was built for."""
    agent = library()
    found = {
        "python": sys.version.split()[0],
        "torch": str(getattr(version, "__version__", "") or ""),
        "cuda": str(getattr(version, "cuda", "") or ""),
    }
    for name, what in found.items():
        if what:
            agent.paceline_pytorch_software(name.encode(), what.encode())


def observe_updates(optimizer):
    """Reports optimizer updates: collectives after an update belong to the next step."""
    if not hasattr(optimizer, "register_optimizer_step_post_hook"):
        return
    # The `torch` module is not fully initialized yet.
    agent, torch = library(), sys.modules["torch"]

    def updated(*_):
        is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
        # A compiled update must stay in one piece, so it is not reported. Before PyTorch 2.3, compilation cannot be
        # detected.
        if is_compiling is not None and not is_compiling():
            agent.paceline_pytorch_updated()

    optimizer.register_optimizer_step_post_hook(updated)


def run_the_jobs_own():
    """Runs the `sitecustomize` that this module hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get(LIBRARY):
    # Registered before all other exit handlers, so that it runs after them.
    atexit.register(Waiter.stop_all)
    sys.meta_path.insert(
        0,
        Imported(
            {
                "torch.version": observe_versions,
                "torch.distributed.distributed_c10d": Groups,
                "torch.optim.optimizer": observe_updates,
                "torch.utils.data.dataloader": observe_input,
            }
        ),
    )
run_the_jobs_own()
