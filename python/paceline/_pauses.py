"""Reports the pauses of training: checkpoints, evaluations, garbage collections, and compilations of the model."""

import functools
import gc
import sys

from paceline import _lines, _trace
from paceline._agent import agent
from paceline._errors import guarded, harmless, say
from paceline._groups import replace
from paceline._identity import ByIdentity
from paceline._modes import compilation_check, evaluates, trains
from paceline._native import Collections, Phase
from paceline._thread import is_training

# The codes of phases in the agent's library.
CHECKPOINT, EVALUATION, COMPILATION = 5, 6, 8

# By module: the functions and methods in which the thread that trains writes a checkpoint. An asynchronous one costs the time
# until the function returns.
CHECKPOINTS = {
    "torch.serialization": ["save"],
    "torch.distributed.checkpoint.state_dict_saver": ["save", "async_save"],
    "transformers.trainer": ["Trainer._save_checkpoint"],
    "lightning.pytorch.trainer.trainer": ["Trainer.save_checkpoint"],
    "pytorch_lightning.trainer.trainer": ["Trainer.save_checkpoint"],
    "accelerate.accelerator": ["Accelerator.save_state"],
    "deepspeed.runtime.engine": ["DeepSpeedEngine.save_checkpoint"],
}
# By module: the methods that evaluate the model. Without one of them, the forward passes tell.
EVALUATIONS = {
    "transformers.trainer": ["Trainer.evaluate", "Trainer.predict"],
    "lightning.pytorch.loops.evaluation_loop": ["_EvaluationLoop.run"],
    "pytorch_lightning.loops.evaluation_loop": ["_EvaluationLoop.run"],
}


class Pause:
    """One kind of pause. One that lies within another of its kind is part of it."""

    def __init__(self, code):
        self.code, self.phase, self.depth = code, Phase(agent(), code), 0

    def begin(self, *_):
        self.depth += 1
        if self.depth == 1:
            _lines.report(self.code, sys._getframe(1))
            self.phase.begin()

    def end(self, *_):
        self.depth = max(self.depth - 1, 0)
        if self.depth == 0:
            self.phase.end()

    def around(self, original):
        """Returns `original` as a function that is a pause of the thread that trains."""

        @functools.wraps(original)
        def paused(*arguments, **named):
            if not guarded(is_training):
                return original(*arguments, **named)
            guarded(self.begin)
            try:
                return original(*arguments, **named)
            finally:
                guarded(self.end)

        return paused


@functools.lru_cache(maxsize=None)
def checkpoint():
    return Pause(CHECKPOINT)


@functools.lru_cache(maxsize=None)
def evaluation():
    return Pause(EVALUATION)


def observers():
    """Returns, by module, what observes the pauses in it."""
    names = {*CHECKPOINTS, *EVALUATIONS}
    return {**dict.fromkeys(names, observe_functions), "torch._dynamo.callback": observe_compilations}


def observe_functions(module):
    for functions, pause in ((CHECKPOINTS, checkpoint), (EVALUATIONS, evaluation)):
        for name in functions.get(module.__name__, ()):
            guarded(observe_function, module, name, pause())


def observe_function(module, name, pause):
    owner, _, method = name.rpartition(".")
    holder = getattr(module, owner, None) if owner else module
    original = getattr(holder, method, None)
    if original is None:
        # Another release of the library. Its pauses are not told apart from the rest of the step.
        say("not observing %s.%s: there is no such function" % (module.__name__, name))
    elif owner:
        setattr(holder, method, pause.around(original))
    else:
        replace(method, original, pause.around)


def observe_collections():
    """Reports collections of garbage on the thread that trains that take long enough to matter."""
    gc.callbacks.append(Collections(agent(), sys.modules["paceline._thread"]))


def observe_compilations(callbacks):
    pause = Pause(COMPILATION)
    callbacks.on_compile_start(harmless(pause.begin))
    callbacks.on_compile_end(harmless(pause.end))


# The evaluations in progress. A training pass of any module ends all of them.
in_progress = set()


class Evaluation:
    """The evaluation of a module between training passes.

    It begins with `eval()`, or with the first forward pass of the wrapper without gradients. It ends with `train()`, or with the last
    such pass. Passes of the inner module are not seen, so without `eval()` they are not an evaluation.
    """

    def __init__(self, wrapper):
        self.phase, self.is_in_mode = Phase(agent(), EVALUATION), False
        for module in (wrapper, wrapper.module):
            evaluated().put(module, self)

    def forward_begins(self):
        if trains():
            # One without an end, by `train()` or by a pass, was no evaluation, and is dropped.
            while in_progress:
                in_progress.pop().phase.finish()
        elif evaluates():
            self.resume()

    def forward_ends(self, *_):
        if evaluates():
            self.pause()

    def resume(self):
        _trace.look()
        if evaluation().depth == 0:
            if self not in in_progress:
                _lines.report(EVALUATION, sys._getframe(1))
            self.phase.resume()
            in_progress.add(self)

    def pause(self):
        if self in in_progress:
            self.phase.pause()

    def changes_mode(self, trains_now):
        """Called before the module changes into or out of the mode of evaluation."""
        if not trains_now and not self.is_in_mode:
            self.resume()
        elif trains_now and self.is_in_mode:
            self.pause()
        self.is_in_mode = not trains_now


@functools.lru_cache(maxsize=None)
def evaluated():
    """Returns the evaluations of modules. `Module.train`, which `Module.eval` calls, reports to them."""
    module, known = sys.modules["torch.nn.modules.module"].Module, ByIdentity()
    change, compiles_caller = module.train, compilation_check()

    def tell(changed_module, mode):
        evaluation = known.get(changed_module)
        if evaluation is not None and is_training():
            evaluation.changes_mode(mode)

    @functools.wraps(change)
    def changed(self, mode=True):
        if not compiles_caller():
            guarded(tell, self, mode)
        return change(self, mode)

    module.train = changed
    return known
