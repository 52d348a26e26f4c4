"""Waits for collectives, to know when they are done."""

from collections import deque
from datetime import timedelta
from queue import SimpleQueue
from threading import Thread
from time import monotonic_ns, thread_time_ns

from paceline._errors import guarded

# The longest single wait, in milliseconds. At exit, the process waits up to this long for a collective in flight.
SLICE_MS = 50
# The longest time that the exit of the process is delayed by a thread that does not end, in seconds.
EXIT_SECONDS = 5

# The waiters whose thread has not ended.
running = set()
# The collectives that only the job may wait for: (group, the agent's number, PyTorch's work). It waits at once.
of_the_job = deque(maxlen=64)


def stop_all():
    waiters = list(running)
    for waiter in waiters:
        waiter.stopping = True
        guarded(waiter.stop)
    for waiter in waiters:
        guarded(waiter.thread.join, EXIT_SECONDS)


class Waiter:
    """Waits for the collectives of one group, one after the other, on its own thread.

    The callback of a future would run on gloo's thread. It would have to wait for the interpreter's lock, and so would
    the collectives after it. A C++ thread that requests the lock while the interpreter finalizes ends the process.
    """

    def __init__(self, agent, group):
        self.agent, self.group = agent, group
        # The collectives to wait for, in order: (the agent's number, PyTorch's work).
        self.under_way, self.of_the_job = SimpleQueue(), of_the_job
        self.slice = timedelta(milliseconds=SLICE_MS)
        self.stopping = False
        self.thread = Thread(target=guarded, args=(self.run,), name="paceline-wait", daemon=True)
        running.add(self)
        self.thread.start()

    def stop(self):
        self.stopping = True
        self.under_way.put((0, None))

    def leave(self):
        """Ends the wait for a group that was destroyed."""
        self.stop()
        self.agent.left(self.group)

    def run(self):
        used = 0
        try:
            while not self.stopping:
                name, work = self.under_way.get()
                while not self.stopping and not self.is_done(work):
                    pass
                if not self.stopping:
                    at, before, used = monotonic_ns(), used, thread_time_ns()
                    self.agent.ended(self.group, name, at, used - before)
                # The work holds the job's tensors, and the next one may be far off.
                work = None
        finally:
            self.stopping = True
            while not self.under_way.empty():
                self.under_way.get()
            running.discard(self)

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
