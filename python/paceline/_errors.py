"""What the observation says on the error stream of the job."""

import sys

said = set()


def say(what):
    """Says something once per process."""
    if what not in said:
        said.add(what)
        try:
            sys.stderr.write("paceline: " + what + "\n")
        except Exception:  # no stderr, or nothing reads it
            pass


def guarded(work, *arguments, **named):
    """Calls `work` and reports its errors: an observer never fails its host."""
    try:
        return work(*arguments, **named)
    except Exception as error:  # any error here is ours, not the job's
        give_up(error)
    except BaseException as error:
        # Of the native part, if it panicked. All others are the job's, such as KeyboardInterrupt.
        if type(error).__name__ != "PanicException":
            raise
        give_up(error)
    return None


def harmless(work):
    """Returns a hook that calls `work` and reports its errors."""

    def hook(*arguments, **named):
        return guarded(work, *arguments, **named)

    return hook


def give_up(error):
    say("not observing PyTorch any further: %s: %s" % (type(error).__name__, error))
