"""The thread that trains: the main thread, or the one that made the model, as in Ray Train."""

import threading

training = threading.main_thread()


def trains_here():
    """Says that the calling thread is the one that trains."""
    global training
    training = threading.current_thread()


def is_training():
    """Returns whether the calling thread is the one that trains."""
    return threading.current_thread() is training
