"""Reports the reductions of a DDP module's buckets.

No communication hook is installed and no hook on a parameter. The reducer keeps the time of each gradient anyway, and
gloo reports to the agent's library when it runs a collective. From PyTorch 2.14 on, hooks of process groups observe the
collectives that are left out here.
"""

import sys
import weakref

from paceline._agent import agent
from paceline._errors import say
from paceline._native import Reductions

# Of each process group whose collectives are observed like this: the agent's index, and whether it also has hooks.
groups = weakref.WeakKeyDictionary()
# The modules whose backward pass has begun since the last forward pass.
in_backward = set()
# Whether one backward pass went through several modules. gloo does not say whose bucket it reduces.
are_mixed = False


def observe(group, name, has_hooks):
    """Observes the reductions that a process group does for DDP. `name` is the agent's index of the group."""
    groups[group] = name, has_hooks


class Buckets:
    """The buckets of one module in `DistributedDataParallel`."""

    def __init__(self, module):
        self.module = weakref.ref(module)
        self.reductions = Reductions(agent())
        # Looked up once, and not in each backward pass: a model has hundreds of modules.
        self.is_sparse = has_sparse_gradients(module)
        # Whether the reducer had rebuilt its buckets when they were read.
        self.was_rebuilt = None
        self.bytes, self.parameters = [], []
        # Whether the module reduces in the backward pass of its last forward pass.
        self.reduces = False
        # Whether hooks of the process group observe what is left out here.
        self.has_hooks = False

    def forward_ended(self, module):
        in_backward.clear()
        self.reductions.forward_ended()
        # Decided in the forward pass: `no_sync` is left before the backward pass.
        # Modules of FSDP and the engine of DeepSpeed have no such attribute, and no reducer.
        self.reduces = getattr(module, "require_backward_grad_sync", False)

    def begin(self):
        """Called when the backward pass begins."""
        module = self.module()
        group, self.has_hooks = groups.get(module.process_group, (None, False)) if self.reduces else (None, False)
        self.reduces = group is not None and self.is_alone() and self.is_reported(module) and self.read(module)
        if self.reduces:
            self.reduces = self.reductions.begin(group, self.bytes, self.parameters)

    def finish(self):
        """Called when all buckets are reduced."""
        if self.reduces:
            self.reductions.finish(self.module().reducer.get_backward_stats())

    def is_alone(self):
        """Returns whether no other module was in the same backward pass so far."""
        global are_mixed
        in_backward.add(self)
        if len(in_backward) > 1:
            are_mixed = True
            self.leave_out("buckets: one backward pass goes through several modules;")
        return not are_mixed

    def is_reported(self, module):
        """Returns whether the reducer reduces its buckets as they are."""
        if module._comm_hooks:
            self.leave_out("buckets of a module with a communication hook:")
            return False
        what = "sparse gradients" if self.is_sparse else left_out(module)
        if what:
            self.leave_out("buckets of a module with %s:" % what)
            return False
        # Then `torch.compile` reduces the gradients.
        return not getattr(module, "_use_python_reducer", False)

    def leave_out(self, what):
        if not self.has_hooks:
            say("not observing %s this needs PyTorch 2.14 or later" % what)

    def read(self, module):
        """Reads the buckets once they change. Returns whether they are known."""
        if self.was_rebuilt == module._has_rebuilt_buckets:
            return True
        told = module._get_ddp_logging_data()
        # The reducer reports new buckets one step after it makes them.
        if module._has_rebuilt_buckets and not told.get("has_rebuilt_buckets"):
            return False
        if module._has_rebuilt_buckets:
            self.bytes = numbers(told["rebuilt_bucket_sizes"])
            self.parameters = [numbers(of, " ") for of in told["rebuilt_per_bucket_param_indices"].split(",")]
        else:
            self.bytes = numbers(told["bucket_sizes"])
            self.parameters = assigned(module, self.bytes)
        self.was_rebuilt = module._has_rebuilt_buckets
        return True


def has_sparse_gradients(module):
    torch = sys.modules["torch"]
    embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return any(isinstance(part, embeddings) and part.sparse for part in module.modules())


def left_out(module):
    """Returns what the reducer does not reduce as one of its dense buckets, or None if it reduces all of them so."""
    if getattr(module, "_delay_all_reduce_params", None):
        return "delayed all-reduces"
    if getattr(module, "skip_all_reduce_unused_params", False):
        return "skipped all-reduces of unused parameters"
    return None


def numbers(text, separator=","):
    return [int(number) for number in text.split(separator) if number.strip()]


def assigned(module, sizes):
    """Returns the parameters of the first buckets, which the reducer does not report; an empty list if they are unknown."""
    parameters = list(reduced(module))
    if len(sizes) == 1:
        return [list(range(len(parameters)))]
    distributed = sys.modules["torch.distributed"]
    found = distributed._compute_bucket_assignment_by_size(parameters, limits(module))[0][::-1]
    own_sizes = [sum(parameters[at].numel() * parameters[at].element_size() for at in bucket) for bucket in found]
    return found if own_sizes == sizes else []


def limits(module):
    """Returns the limits of the sizes of the first buckets, in bytes. The last one holds for all further buckets."""
    if module.static_graph or not module.find_unused_parameters:
        return [sys.maxsize]
    listed = getattr(module, "bucket_bytes_cap_list", None)
    return list(listed) if listed else [first_limit(module), module.bucket_bytes_cap]


def first_limit(module):
    """Returns the limit of the size of the first bucket, in bytes. The default does not hold for a limit that the job sets."""
    is_default = getattr(module, "bucket_bytes_cap_default", True)
    return sys.modules["torch.distributed"]._DEFAULT_FIRST_BUCKET_BYTES if is_default else module.bucket_bytes_cap


def reduced(module):
    """Returns the parameters that the reducer reduces, in its order, each once, with their names in the wrapped module."""
    found = {}
    for prefix, part in module.module.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.requires_grad and "%s.%s" % (prefix, name) not in module.parameters_to_ignore:
                found.setdefault(parameter, "%s.%s" % (prefix, name) if prefix else name)
    return found
