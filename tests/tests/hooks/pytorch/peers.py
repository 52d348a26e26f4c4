"""A DDP job that is observed in one of several ways, and prints the time of its steps. The variables ARM and STEPS say how."""

import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from plain_ddp import Model
from torch.nn.parallel import DistributedDataParallel

ARM, STEPS = os.environ["ARM"], int(os.environ["STEPS"])
WARM_UP = 30


def timed_all_reduce(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook in Python that notes when each bucket is reduced."""
    begun = time.monotonic_ns()
    buffer = bucket.buffer().div_(dist.get_world_size())
    future = dist.all_reduce(buffer, async_op=True).get_future().then(lambda reduced: reduced.value()[0])
    future.add_done_callback(lambda _: times.append((bucket.index(), begun, time.monotonic_ns())))
    return future


times = []


def around_steps(model):
    """Returns what observes all steps, and what observes each one."""
    if ARM == "profiler":
        return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]), contextlib.nullcontext
    if ARM == "traceml":
        import traceml_ai

        traceml_ai.init(mode="auto")
        return contextlib.nullcontext(), lambda: traceml_ai.trace_step(model)
    if ARM == "communication_hook":
        model.register_comm_hook(None, timed_all_reduce)
    return contextlib.nullcontext(), contextlib.nullcontext


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Model(width=768, depth=6), bucket_cap_mb=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, target = torch.randn(64, 768), torch.randn(64, 768)
    around_all, around_each = around_steps(model)

    def train(steps):
        took = []
        for _ in range(steps):
            begun = time.perf_counter_ns()
            with around_each():
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(batch), target).backward()
                optimizer.step()
            took.append(time.perf_counter_ns() - begun)
        return took

    with around_all:
        train(WARM_UP)
        dist.barrier()
        cpu = time.process_time_ns()
        took = train(STEPS)
        cpu = time.process_time_ns() - cpu
    dist.barrier()
    if dist.get_rank() == 0:
        print(json.dumps({"step": sorted(took)[STEPS // 2], "mean": sum(took) / STEPS, "cpu": cpu / STEPS}), flush=True)
    sys.stdout.flush()
    # Avoids gloo's shutdown, which sometimes fails.
    os._exit(0)


main()
