"""Reports which parameters lie in which bucket of a module in `DistributedDataParallel`, and the module's settings.

The reducer tells both in its logging data, which it keeps in host memory. It refreshes the data in the first ten passes and
in every hundredth, and only then is it read here.
"""

import itertools
import json
import sys

from paceline._agent import agent
from paceline._buckets import assigned, first_limit, numbers, reduced

# The numbers of modules, in the order in which the job makes them.
module_numbers = itertools.count()
# The passes in which the reducer refreshes its data.
FIRST_PASSES, EVERY = 10, 100
# The names under which settings are reported, and the values of all modules.
settings_of_all = {}


def layouts_of(module):
    """Returns the reports of a module's layouts, or None if it has no reducer, or if rank 0 is not in its group."""
    if getattr(module, "reducer", None) is None or not hasattr(module, "_get_ddp_logging_data"):
        return None
    # Ranks count all of their modules, so that peers give a module the same number.
    number = next(module_numbers)
    # With `torch.compile`'s own reducer, the gradients are not reduced in these buckets.
    if getattr(module, "_use_python_reducer", False):
        return None
    # The names are those of rank 0, and only its peers should have the same. Another stage or shard has parameters of its own.
    peers = sys.modules["torch.distributed"].get_process_group_ranks(module.process_group)
    return Layouts(module, number) if 0 in peers else None


class Layouts:
    """The layouts of one module's buckets: the first one, and the one that the reducer makes after the first backward pass."""

    def __init__(self, module, number):
        self.number, self.type = number, type(module.module).__name__
        parameters = reduced(module)
        self.names = list(parameters.values())
        self.elements = [parameter.numel() for parameter in parameters]
        self.bytes = [parameter.numel() * parameter.element_size() for parameter in parameters]
        self.types = [str(parameter.dtype).replace("torch.", "") for parameter in parameters]
        # The number of forward passes whose gradients are reduced.
        self.passes = 0
        # The number of updates before the first pass with rebuilt buckets; None before that pass.
        self.rebuilt_after = None
        # What was reported last.
        self.generation, self.since, self.buckets, self.unused = 0, agent().updates(), [], None
        told = module._get_ddp_logging_data()
        sizes = numbers(told["bucket_sizes"])
        self.report(assigned(module, sizes), sizes)

    def forward_ended(self, module):
        if not module.require_backward_grad_sync:
            return
        self.passes += 1
        if self.passes == 1:
            report_settings(module)
        if self.rebuilt_after is None and module._has_rebuilt_buckets:
            self.rebuilt_after = agent().updates()
        awaits_layout = self.rebuilt_after is not None and self.generation == 0
        may_be_unused = module.find_unused_parameters or module.static_graph
        if self.is_refreshed() and (awaits_layout or may_be_unused):
            self.read(module._get_ddp_logging_data(), may_be_unused)

    def is_refreshed(self):
        """Returns whether the reducer may tell more now than in the pass before."""
        return 1 < self.passes <= FIRST_PASSES or self.passes % EVERY == 1

    def read(self, told, may_be_unused):
        unused = self.unused
        if may_be_unused and told.get("prev_iteration_grad_ready_order_indices"):
            # Autograd calls the hooks of the parameters that it computes gradients of, and of no others.
            used = set(numbers(told["prev_iteration_grad_ready_order_indices"]))
            unused = [at for at in range(len(self.names)) if at not in used]
        # The reducer reports new buckets one pass after it makes them.
        if self.generation == 0 and told.get("has_rebuilt_buckets"):
            # Without updates, nothing tells the step.
            self.generation, self.since = 1, self.rebuilt_after or None
            sizes = numbers(told["rebuilt_bucket_sizes"])
            buckets = [numbers(of, " ") for of in told["rebuilt_per_bucket_param_indices"].split(",")]
            self.unused = unused
            self.report(buckets, sizes)
        elif unused != self.unused:
            self.unused = unused
            self.report(self.buckets, [self.size(bucket) for bucket in self.buckets])

    def size(self, bucket):
        return sum(self.bytes[at] for at in bucket)

    def report(self, buckets, sizes):
        """Reports a layout, unless the sizes that the reducer tells are not those of the parameters."""
        self.buckets = buckets
        if not buckets or [self.size(bucket) for bucket in buckets] != sizes:
            return
        places = {at: place for place, at in enumerate(at for bucket in buckets for at in bucket)}
        unused = None if self.unused is None else sorted(places[at] for at in self.unused if at in places)
        layout = {
            "comm": 0,
            "generation": self.generation,
            "module": self.number,
            "class": self.type,
            "since": self.since,
            "unused": unused,
            "buckets": [self.described(number, bucket) for number, bucket in enumerate(buckets)],
        }
        agent().layout(json.dumps(layout))

    def described(self, number, bucket):
        return {
            "bucket": number,
            "bytes": self.size(bucket),
            "dtype": self.types[bucket[0]] if bucket else "",
            "parameters": [self.names[at] for at in bucket],
            "elements": [self.elements[at] for at in bucket],
        }


def report_settings(module):
    """Reports the settings of a module as attributes of the rank. Several modules may differ."""
    told = module._get_ddp_logging_data()
    settings = {
        "bucket_cap_mb": mebibytes(module.bucket_bytes_cap),
        "first_bucket_cap_mb": mebibytes(first_limit(module)),
        "gradient_as_bucket_view": yes_or_no(told["gradient_as_bucket_view"]),
        "find_unused_parameters": yes_or_no(told["find_unused_parameters"]),
        "static_graph": yes_or_no(module.static_graph),
        "broadcast_buffers": yes_or_no(told["broadcast_buffers"]),
        "comm_hook": hook_of(module) or told.get("comm_hook") or "none",
    }
    for name, value in settings.items():
        values = settings_of_all.setdefault(name, [])
        if value not in values:
            values.append(value)
            agent().software("ddp " + name, ", ".join(values))


def hook_of(module):
    """Returns the name of the communication hook, or None if there is none or it is one of PyTorch's in C++."""
    for hook, _ in module._comm_hooks:
        return getattr(hook, "__qualname__", None) or type(hook).__name__
    return None


def mebibytes(count):
    # DDP rounds its limits to whole bytes.
    return "%g" % round(count / 2**20, 3)


def yes_or_no(value):
    return "yes" if value else "no"
