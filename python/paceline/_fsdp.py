"""Reports the passes of a model in FSDP2 (`fully_shard`): those of its outermost module."""

import functools

from paceline._errors import guarded
from paceline._phases import Passes


def observe_states(fsdp_state):
    """Observes the module `torch.distributed.fsdp._fully_shard._fsdp_state`."""
    state = fsdp_state.FSDPState
    prepare = state._lazy_init

    @functools.wraps(prepare)
    def prepared(self, *arguments, **named):
        was_known = guarded(knows_its_place, self)
        prepare(self, *arguments, **named)
        if was_known is False:
            guarded(observe_outermost, self)

    state._lazy_init = prepared


def knows_its_place(state):
    """Returns whether the state knows if its module is the outermost one. It learns that in its first forward pass."""
    return state._is_root is not None


def observe_outermost(state):
    if state._is_root:
        module = state._modules[0] if hasattr(state, "_modules") else state._module
        Passes(module).observe_by_hooks(module)
