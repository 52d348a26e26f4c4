"""What the observation says on the error stream of the job, and how its errors are kept from the job."""

import signal
import sys
import traceback

said = set()


def say(what):
    """Says something once per process."""
    if what not in said:
        said.add(what)
        try:
            sys.stderr.write("paceline: " + what + "\n")
        except Exception as error:  # no stderr, or nothing reads it
            if is_of_a_signal_handler(error):
                raise


def guarded(work, *arguments, **named):
    """Calls `work` and reports its errors: an observer never fails its host."""
    try:
        return work(*arguments, **named)
    except BaseException as error:
        # The native part panics with an error that is no `Exception`. All others are the job's, such as KeyboardInterrupt.
        is_ours = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if not is_ours or is_of_a_signal_handler(error):
            raise
        give_up(error)
    return None


def is_of_a_signal_handler(error):
    """Returns whether a signal handler of the job raised an error.

    A signal that arrives while PyTorch computes is handled by the next Python code, which is often a hook of ours.
    """
    codes = {code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def code_of(handler):
    """Returns the code of a signal handler that is a function, a method, or a partial call or instance with one."""
    handler = getattr(handler, "func", handler)
    handler = getattr(handler, "__func__", handler)
    return getattr(handler, "__code__", None) or getattr(getattr(type(handler), "__call__", None), "__code__", None)


def harmless(work):
    """Returns a hook that calls `work` and reports its errors."""

    def hook(*arguments, **named):
        return guarded(work, *arguments, **named)

    return hook


def give_up(error):
    say("not observing PyTorch any further: %s: %s" % (type(error).__name__, error))
