"""A DDP job that is observed in one of several ways, and prints the time of its steps, and the processor time that a step takes rank 0's
process, its main thread, the agent's threads in it, and the server. The variables ARM and STEPS say how, and WIDTH how wide the model
is."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from plain_ddp import Model
from torch.nn.parallel import DistributedDataParallel

ARM, STEPS, WIDTH = os.environ["ARM"], int(os.environ["STEPS"]), int(os.environ.get("WIDTH", 768))
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


def used_by(process, is_counted=lambda name: True):
    """Returns the processor time of the threads of a process whose names count, in nanoseconds."""
    threads = (thread for thread in Path("/proc", str(process), "task").iterdir())
    counted = (thread for thread in threads if is_counted((thread / "comm").read_text()))
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in counted)


def server():
    """Returns the process that started the job and collects its records, or None if the job is not observed."""
    process = os.getpid()
    while process > 1:
        name, rest = Path("/proc", str(process), "stat").read_text().rsplit(")", 1)
        if name.endswith("(paceline"):
            return process
        process = int(rest.split()[1])
    return None


def used(observer):
    """Returns the processor time so far, by who used it."""
    return {
        "cpu": time.process_time_ns(),
        "main": time.thread_time_ns(),
        "agent": used_by(os.getpid(), lambda name: name.startswith("paceline")),
        "server": used_by(observer) if observer else 0,
    }


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    # Three buckets at any width.
    model = DistributedDataParallel(Model(width=WIDTH, depth=6), bucket_cap_mb=4 * (WIDTH / 768) ** 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, target = torch.randn(64, WIDTH), torch.randn(64, WIDTH)
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
        observer = server()
        before = used(observer)
        took = train(STEPS)
        after = used(observer)
    dist.barrier()
    if dist.get_rank() == 0:
        each = {who: (after[who] - before[who]) / STEPS for who in after}
        print(json.dumps({"step": sorted(took)[STEPS // 2], "mean": sum(took) / STEPS, **each}), flush=True)
    sys.stdout.flush()
    # Avoids gloo's shutdown, which sometimes fails.
    os._exit(0)


main()
