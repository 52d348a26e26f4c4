"""Reports the passes of a model in FSDP2 (`fully_shard`): those of its outermost module."""

import functools

from paceline._errors import guarded
from paceline._phases import Passes


def observe_states(fsdp_state):
    """Observes the module `torch.distributed.fsdp._fully_shard._fsdp_state`."""
    state = fsdp_state.FSDPState
    prepare = state._lazy_init

    @functools.wraps(prepare)
    def prepared(self):
        was_known = self._is_root is not None
        prepare(self)
        # In its first forward pass, a state learns whether its module is the outermost one.
        if not was_known and self._is_root:
            guarded(Passes, self._modules[0] if hasattr(self, "_modules") else self._module)

    state._lazy_init = prepared
