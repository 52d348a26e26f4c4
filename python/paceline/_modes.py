"""What PyTorch is doing when it calls a hook."""

import sys

from paceline._thread import is_training


def compilation_check():
    """Returns PyTorch's own function that says whether `torch.compile` traces its caller. The compiler evaluates it while it
    traces, so a branch on it leaves nothing in compiled code. PyTorch before 2.3 cannot tell, and then the answer is always yes."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: True)


def is_compiling():
    """Returns whether `torch.compile` traces the caller, which must then do nothing."""
    return compilation_check()()


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
