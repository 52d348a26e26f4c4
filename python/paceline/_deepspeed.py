"""Reports the passes and updates of DeepSpeed's engine, which has no module of PyTorch's DDP."""

import functools

from paceline import _phases
from paceline._errors import guarded


def observe_engine(engine):
    """Observes the module `deepspeed.runtime.engine`."""
    engine = engine.DeepSpeedEngine
    make, step = engine.__init__, engine.step

    @functools.wraps(make)
    def made(self, *arguments, **named):
        make(self, *arguments, **named)
        guarded(observe_passes, self)

    @functools.wraps(step)
    def stepped(self, *arguments, **named):
        # ZeRO updates each group of parameters by a call of its own, and gathers the parameters after the last one.
        steps = guarded(updates_of, self)
        _phases.in_step.append(self)
        try:
            return step(self, *arguments, **named)
        finally:
            guarded(end_step, self, steps)

    engine.__init__, engine.step = made, stepped


def observe_passes(engine):
    _phases.Passes(engine).observe_by_hooks(engine)


def end_step(engine, steps):
    _phases.in_step.remove(engine)
    if updates_of(engine) != steps:
        _phases.step_ended(engine)


def updates_of(engine):
    """Returns how many updates the engine has made. One that overflowed is not among them."""
    return engine.global_steps - engine.skipped_steps
