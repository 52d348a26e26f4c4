"""Traces a few steps with PyTorch's profiler, when the server asks for it.

The profiler belongs to the thread that starts it, so the thread that trains starts and stops it, between two steps. Another
thread writes the trace. The job's own profiler always has the precedence: while it is active no trace begins, and when it
starts a trace ends.
"""

import atexit
import functools
import gzip
import os
import shutil
import sys
import tempfile
import threading
import weakref
from time import monotonic_ns

from paceline._agent import agent
from paceline._errors import guarded, is_of_a_signal_handler
from paceline._thread import is_training

# The largest compressed trace, in bytes, and the free space that writing one needs. Uncompressed it is up to 20 times as large.
MOST_BYTES, FREE_BYTES = 64 << 20, 2 << 30
# How much is compressed at a time, in bytes.
CHUNK_BYTES = 1 << 20
# The longest time that the exit of the process waits for a trace that is being written, in seconds.
EXIT_SECONDS = 5
# The largest number of further steps that are recorded until the device has run the last step. A host can be about 1,000 kernels
# ahead of its device.
MOST_FURTHER_STEPS = 40
# How long a profiler of the job on another thread waits for the end of a trace, in seconds. It fails if it starts before.
GIVE_WAY_SECONDS = 5
OWN_PROFILER = "the job started its own profiler during the trace"

# Whether an update has ended a step that a trace may begin or end with.
due = False
# The trace that is being recorded.
running = None
# The number of the newest request that was taken up.
done = 0
# The thread that writes the newest trace.
writer = None
# The job's own profilers that are active.
theirs = weakref.WeakSet()


def updated():
    """Called after an update of parameters: a step has ended."""
    global due
    if running is not None or agent().trace_asked() is not None:
        due = is_training()


def look():
    """Called by several hooks. The first one in a step begins or ends the trace, outside of the update's own range."""
    if (due or running is not None) and is_training():
        guarded(turn)


def turn():
    """Begins or ends a trace, if it is time to."""
    global due, running
    asked, is_between, due = agent().trace_asked(), due, False
    if running is not None:
        if running.gives_way.is_set():
            # Where it did not wait, ending the trace would end that profiler as well.
            if not theirs:
                stop(OWN_PROFILER)
        elif asked is None or asked[0] != running.number:
            # The request was given up, because its steps took too long.
            stop()
        elif is_between:
            go_on(running)
    elif is_between and asked is not None and asked[0] != done:
        begin(*asked)


def go_on(trace):
    """Ends a step of the trace."""
    global running
    # After an error, none is running.
    running = None
    try:
        if not trace.step_ended():
            running = trace
    except BaseException as error:
        trace.abandon()
        if is_of_the_job(error):
            raise
        agent().not_traced(trace.number, "PyTorch's profiler failed: %s: %s" % (type(error).__name__, error))


def is_of_the_job(error):
    """Returns whether an error came from the job's own code: a signal handler, which may run here."""
    return not isinstance(error, Exception) or is_of_a_signal_handler(error)


def begin(number, first, steps, now):
    """Begins a trace, if the step that begins `now` is one of its steps."""
    global done, running
    if now < first:
        return
    done = number
    reason = obstacle()
    if reason is None:
        try:
            running = Trace(number, now, steps)
            return
        except Exception as error:
            if is_of_the_job(error):
                raise
            reason = "PyTorch's profiler did not start: %s: %s" % (type(error).__name__, error)
    agent().not_traced(number, reason)


def obstacle():
    """Returns the reason why no trace may begin now; None if it may."""
    torch = sys.modules["torch"]
    profiler = torch.autograd.profiler
    if theirs or torch.autograd._profiler_enabled() or getattr(profiler, "_is_profiler_enabled", False):
        return "the job's own profiler is active"
    if os.environ.get("KINETO_USE_DAEMON"):
        return "KINETO_USE_DAEMON is set, so another tool may profile this process at any time"
    if shutil.disk_usage(tempfile.gettempdir()).free < FREE_BYTES:
        return "%s has less than %d GiB of free space" % (tempfile.gettempdir(), FREE_BYTES >> 30)
    return None


def stop(reason=None):
    """Ends the trace early. A `reason` is sent as the answer to the request."""
    global running
    if running is not None and is_training():
        ended, running = running, None
        if reason is not None:
            agent().not_traced(ended.number, reason)
        ended.end()


class Trace:
    """A trace that is being recorded on the thread that trains."""

    def __init__(self, number, first, steps):
        began = monotonic_ns()
        torch = sys.modules["torch"]
        self.autograd, self.number, self.first, self.steps = torch.autograd, number, first, steps
        self.step = first
        # The CUDA event behind the last step.
        self.last = None
        self.gives_way, self.ended = threading.Event(), threading.Event()
        # Not entered: entering and leaving it waits for the device.
        own = torch.autograd.profiler.profile(
            use_kineto=True, use_device="cuda" if torch.cuda.is_initialized() else None
        )
        self.is_on_device = own.use_device is not None
        if self.is_on_device:
            # As `torch.profiler` does: CUDA graphs and a CUPTI that is taken down do not work together.
            os.environ.setdefault("TEARDOWN_CUPTI", "0")
            os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
        watch_ends()
        self.annotation = None
        try:
            self.autograd._prepare_profiler(new_config(own), own.kineto_activities)
            self.autograd._enable_profiler(own.config(), own.kineto_activities)
            self.begin_step()
            self.pause = monotonic_ns() - began
        except BaseException:
            self.abandon()
            raise

    def abandon(self):
        """Stops the profiler after an error."""
        if self.autograd._profiler_enabled():
            self.end()

    def begin_step(self):
        # Tools recognize a step by this name.
        annotation = self.autograd.profiler.record_function("ProfilerStep#%d" % self.step)
        annotation.__enter__()
        self.annotation = annotation

    def end_step(self):
        annotation, self.annotation = self.annotation, None
        if annotation is not None:
            annotation.__exit__(None, None, None)

    def step_ended(self):
        """Begins the next step. Returns whether the trace has ended: its steps are over, and the device has run them."""
        began = monotonic_ns()
        self.end_step()
        self.step += 1
        over = self.step - (self.first + self.steps)
        if over < 0:
            self.begin_step()
            return False
        if self.is_on_device and over < MOST_FURTHER_STEPS and not self.has_run():
            return False
        recorded = self.end()
        self.pause += monotonic_ns() - began
        agent().trace_recorded(self.number)
        write_aside(self, recorded)
        return True

    def has_run(self):
        """Returns whether the device has run the last step. Nothing waits for it."""
        cuda = sys.modules["torch"].cuda
        if cuda.is_current_stream_capturing():
            return False
        if self.last is None:
            self.last = cuda.Event()
            self.last.record()
        return self.last.query()

    def end(self):
        """Stops the profiler. Returns what it recorded."""
        if not self.autograd._profiler_enabled():
            # What it would return must not be written: PyTorch 2.15 fails with a signal.
            raise RuntimeError("something else has stopped it")
        try:
            self.end_step()
        finally:
            recorded = self.autograd._disable_profiler()
            self.ended.set()
        return recorded


def new_config(own):
    """Returns the settings of a profiler that begins. Before PyTorch 2.5, a trace has no id."""
    try:
        return own.config(create_trace_id=True)
    except TypeError:
        return own.config()


def write_aside(trace, recorded):
    """Writes what a trace recorded, on a thread of its own."""
    global writer
    writer = threading.Thread(target=guarded, args=(write, trace, recorded), name="paceline-trace", daemon=True)
    writer.start()


def write(trace, recorded):
    """Writes what a trace recorded and hands the compressed file over."""
    folder = tempfile.mkdtemp(prefix="paceline-trace-")
    try:
        with tempfile.TemporaryFile() as packed:
            reason = write_to(os.path.join(folder, "trace.json"), recorded, packed)
            if reason is None:
                agent().traced(trace.number, trace.first, trace.steps, trace.pause, packed.fileno())
            else:
                agent().not_traced(trace.number, reason)
    except Exception as error:
        agent().not_traced(trace.number, "the trace could not be written: %s: %s" % (type(error).__name__, error))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_to(path, recorded, packed):
    """Writes a trace to `path` and, compressed, to `packed`. Returns the reason why it is not whole; None if it is."""
    recorded.save(path)
    with open(path, "rb") as plain:
        os.unlink(path)
        newest = b""
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=3, filename="") as compressed:
            for chunk in iter(lambda: plain.read(CHUNK_BYTES), b""):
                compressed.write(chunk)
                newest = chunk
                if packed.tell() > MOST_BYTES:
                    return "the trace is larger than %d MiB: ask for fewer steps" % (MOST_BYTES >> 20)
    packed.flush()
    # PyTorch only logs an error of the disk.
    return None if newest.rstrip().endswith(b"}") else "the trace could not be written to %s" % tempfile.gettempdir()


@functools.lru_cache(maxsize=None)
def watch_ends():
    """Ends a trace before the thread that trains forks the process, whose child would record for ever, and at exit."""
    os.register_at_fork(before=functools.partial(guarded, stop, "the job started a process during the trace"))
    atexit.register(guarded, finish)


def finish():
    """Ends a trace at the exit of the process, which waits until its files are removed."""
    stop("the process ended during the trace")
    if writer is not None:
        writer.join(EXIT_SECONDS)


def observe_profilers(profiler):
    """Lets the job's own profilers take precedence."""
    for cls, starts in (("profile", "_prepare_trace"), ("emit_itt", "__enter__"), ("emit_nvtx", "__enter__")):
        observe_profiler(getattr(profiler, cls), starts)


def observe_profiler(cls, starts):
    start, leave = getattr(cls, starts), cls.__exit__

    @functools.wraps(start)
    def started(self, *arguments, **named):
        guarded(give_way, self)
        try:
            return start(self, *arguments, **named)
        except BaseException:
            guarded(theirs.discard, self)
            raise

    @functools.wraps(leave)
    def left(self, *arguments, **named):
        try:
            return leave(self, *arguments, **named)
        finally:
            guarded(theirs.discard, self)

    setattr(cls, starts, started)
    cls.__exit__ = left


def give_way(profiler):
    """Ends the trace before a profiler of the job begins. On another thread, it waits until the thread that trains did so."""
    trace = running
    if trace is not None and not is_training():
        trace.gives_way.set()
        trace.ended.wait(GIVE_WAY_SECONDS)
    theirs.add(profiler)
    stop(OWN_PROFILER)
