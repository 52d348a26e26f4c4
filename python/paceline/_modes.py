"""What PyTorch is doing when it calls a hook."""

import sys

from paceline._thread import is_training


def compiling():
    """Returns PyTorch's own function that says whether `torch.compile` traces its caller. It knows this function, so that code
    behind a call of it is not compiled. Before PyTorch 2.3, that cannot be detected."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: True)


def is_compiling():
    """Returns whether `torch.compile` traces the caller, which must then do nothing."""
    return compiling()()


def trains():
    """Returns whether the caller is in a forward pass that a backward pass will follow.

    The module does not tell: Lightning leaves the one in `DistributedDataParallel` in evaluation mode.
    """
    if is_compiling():
        return False
    return sys.modules["torch"].is_grad_enabled() and is_training()


def evaluates():
    """Returns whether the caller is in a forward pass that no backward pass will follow."""
    if is_compiling():
        return False
    return not sys.modules["torch"].is_grad_enabled() and is_training()
