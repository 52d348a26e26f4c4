"""Reports the phases of the training thread, optimizer updates, and the versions of the software."""

import functools
import gc
import sys
import weakref

from paceline import _lines, _memory, _trace
from paceline._agent import agent
from paceline._buckets import Buckets
from paceline._devices import device_of, phase_on
from paceline._errors import guarded, harmless
from paceline._layouts import layouts_of
from paceline._identity import ByIdentity
from paceline._modes import compilation_check, is_compiling, trains
from paceline._native import Phase
from paceline._pauses import Evaluation
from paceline._thread import is_training, trains_here
from paceline._waits import interrupt, interrupted, resumed

# The codes of phases in the agent's library.
INPUT, FORWARD, BACKWARD, OPTIMIZER = 0, 2, 3, 4

# The engines whose step is in progress. It makes one update of the updates of several optimizers, and reports it itself.
in_step = []

# The largest number of values of a model's output that are searched for a tensor.
MOST_VALUES = 64


def observe_input(dataloader):
    """Reports the waits of the thread that trains for a batch, at the one place that all data loaders share, and the start of
    their workers, which an epoch begins with."""
    phase = Phase(agent(), INPUT)

    def timed(original):
        @functools.wraps(original)
        def waits(self):
            if not guarded(is_training):
                return original(self)
            guarded(_trace.look)
            guarded(_lines.report_often, INPUT, sys._getframe(1))
            guarded(phase.begin)
            try:
                return original(self)
            finally:
                guarded(phase.end)

        return waits

    iterator, loader = dataloader._BaseDataLoaderIter, dataloader.DataLoader
    iterator.__next__ = timed(iterator.__next__)
    loader.__iter__ = timed(loader.__iter__)


def observe_versions(version):
    """Reports the versions of Python, PyTorch, and the CUDA that PyTorch was built for."""
    found = {
        "python": sys.version.split()[0],
        "torch": str(getattr(version, "__version__", "") or ""),
        "cuda": str(getattr(version, "cuda", "") or ""),
    }
    for name, what in found.items():
        if what:
            agent().software(name, what)


def observe_updates(optimizer):
    """Reports optimizer updates: collectives after an update belong to the next step."""
    if not hasattr(optimizer, "register_optimizer_step_post_hook"):
        return
    # The phase of each optimizer.
    phases = weakref.WeakKeyDictionary()

    def phase_of(updating):
        if updating not in phases:
            phases[updating] = update_phase(device_of(parameters_of(updating)))
        return phases[updating]

    def begins(updating, *_):
        # A compiled update must stay in one piece, so it is not reported.
        if is_compiling():
            return
        # The last place before the end of a step, for a job without other hooks.
        _trace.look()
        if phase_of(updating):
            phase_of(updating).begin()

    def updated(updating, *_):
        if is_compiling():
            return
        if phase_of(updating):
            phase_of(updating).end()
        if not in_step:
            step_ended(updating)

    if hasattr(optimizer, "register_optimizer_step_pre_hook"):
        optimizer.register_optimizer_step_pre_hook(harmless(begins))
    optimizer.register_optimizer_step_post_hook(harmless(updated))


# A weak reference to the optimizer, or the engine, that made the first update.
first_updating = None


def step_ended(updating):
    """Reports an update of parameters by an optimizer or an engine, which ends a step."""
    global first_updating
    if first_updating is None:
        first_updating = weakref.ref(updating)
    elif first_updating() is not updating:
        # Their updates may belong to one step, as those of a GAN's two models.
        agent().updated_by_several()
    agent().updated()
    _trace.updated()
    _memory.look()


@functools.lru_cache(maxsize=None)
def update_phase(device):
    """Returns the phase in which a device updates parameters, or None if it is not observed."""
    return phase_on(device, OPTIMIZER)


def parameters_of(optimizer):
    return (parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"])


def observe_modules(distributed):
    """Reports the passes of each module in `DistributedDataParallel`, and its evaluations.

    Nothing is stored in a module, which the job may pickle. A hook would also change how `torch.compile` compiles it.
    """
    wrapper = distributed.DistributedDataParallel
    make, forward = wrapper.__init__, wrapper.forward
    # The check is looked up when a module is made, because this function runs while PyTorch is being imported.
    observers_of, compiles_caller = ByIdentity(), None

    @functools.wraps(make)
    def made(self, *arguments, **named):
        make(self, *arguments, **named)
        guarded(observe, self)

    @functools.wraps(forward)
    def observed_forward(self, *inputs, **named):
        # Nothing below may become part of compiled code.
        if compiles_caller is None or compiles_caller():
            return forward(self, *inputs, **named)
        observers = guarded(observers_of.get, self) or ()
        for observer in observers:
            guarded(observer.forward_begins)
        output = forward(self, *inputs, **named)
        for observer in observers:
            guarded(observer.forward_ends, self, inputs, output)
        return output

    def with_waits_left_out(synchronize):
        @functools.wraps(synchronize)
        def synchronizes(self, *arguments, **named):
            if compiles_caller is None or compiles_caller():
                return synchronize(self, *arguments, **named)
            # A forward pass that waits for other ranks' buffers, as with batch normalization, does not compute.
            phases = guarded(interrupted) or ()
            try:
                return synchronize(self, *arguments, **named)
            finally:
                guarded(resumed, phases)

        return synchronizes

    def observe(module):
        nonlocal compiles_caller
        compiles_caller = compilation_check()
        observers = guarded(Passes, module, on=("cpu", "cuda")), guarded(Evaluation, module)
        observers_of.put(module, [observer for observer in observers if observer is not None])

    wrapper.__init__, wrapper.forward = made, observed_forward
    if hasattr(wrapper, "_sync_buffers"):
        wrapper._sync_buffers = with_waits_left_out(wrapper._sync_buffers)
    for made_before in instances(wrapper):
        guarded(observe, made_before)


def instances(cls):
    """Returns the existing instances of a class and its subclasses."""
    found = [one for one in gc.get_referrers(cls) if type(one) is cls]
    return found + [one for subclass in cls.__subclasses__() for one in instances(subclass)]


class Loss:
    """The time from the output of a module to its gradient, which counts as part of the forward pass.

    It ends when the next pass of any module begins. A GAN uses one of its models between the output and the gradient of the other,
    and waits and updates in between are not part of that.
    """

    # The phase in progress. There is at most one, because the thread that trains does one thing at a time.
    phase = None

    @classmethod
    def begin(cls, phase):
        cls.end()
        cls.phase = phase
        phase.begin()

    @classmethod
    def end(cls):
        phase, cls.phase = cls.phase, None
        if phase is not None:
            phase.end()


class Passes:
    """The forward and the backward passes of one module, if its device is of one of the types `on`.

    The caller reports forward passes. Hooks on their output and on the end of autograd's work report backward passes.
    """

    def __init__(self, module, on=("cpu",)):
        self.device = device_of(module.parameters())
        self.is_observed = self.device is not None and self.device.type in on
        if not self.is_observed:
            return
        from torch.autograd import Variable

        trains_here()
        self.queue_callback = Variable._execution_engine.queue_callback
        self.forward, self.backward = phase_on(self.device, FORWARD), phase_on(self.device, BACKWARD)
        self.loss = phase_on(self.device, FORWARD)
        if self.device.type == "cpu":
            interrupt(self.forward, self.backward, self.loss)
        # Of a device, NCCL reports the buckets.
        self.buckets = Buckets(module) if self.device.type == "cpu" else None
        self.layouts = guarded(layouts_of, module)

    def observe_by_hooks(self, module):
        """Observes forward passes by hooks on the module. Only for modules that jobs do not pickle."""
        if self.is_observed:
            module.register_forward_pre_hook(harmless(self.forward_begins))
            module.register_forward_hook(harmless(self.forward_ends))

    def forward_begins(self, *_):
        if self.is_observed and trains():
            _trace.look()
            Loss.end()
            self.forward.begin()

    def forward_ends(self, module, _inputs, output):
        if not self.is_observed or not trains():
            return
        self.forward.end()
        if self.buckets:
            self.buckets.forward_ended(module)
        if self.layouts:
            guarded(self.layouts.forward_ended, module)
        self.begin_loss(output)

    def begin_loss(self, output):
        tensor = first_tensor(output)
        if tensor is not None:
            Loss.begin(self.loss)
            # The hook runs on a tensor of the output, before autograd computes anything of the module.
            tensor.register_hook(harmless(self.backward_begins))

    def backward_begins(self, _):
        Loss.end()
        self.queue_callback(harmless(self.backward_ends))
        if self.buckets:
            guarded(self.buckets.begin)
        self.backward.begin()

    def backward_ends(self):
        self.backward.end()
        # This callback runs after the one by which the module waits for its reduced gradients.
        self.queue_callback(harmless(self.reduced))

    def reduced(self):
        # An update that computes the loss itself, as in Lightning, begins now.
        update_phase(self.device).restart()
        if self.buckets:
            self.buckets.finish()


def first_tensor(output):
    """Returns the first tensor of a model's output that needs a gradient."""
    torch, values = sys.modules["torch"], [output]
    for _ in range(MOST_VALUES):
        if not values:
            return None
        value = values.pop(0)
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                return value
        elif isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, (list, tuple)):
            values.extend(value)
        elif hasattr(value, "__dataclass_fields__"):
            values.extend(vars(value).values())
    return None
