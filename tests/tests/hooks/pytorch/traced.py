"""A DDP job that can be traced. Rank 1 computes a loop of small operators in its forward pass: `aten::cosh`.

Usage: traced.py OWN_PROFILER

It trains until the file STOP in $FOLDER exists, or $FOLDER does not, which rank 0 decides for all, but not fewer steps than $STEPS. With
OWN_PROFILER `always`, the job profiles itself all the time; with `within`, it does so in every tenth step. With `late`, it has none,
and a stand-in for a device runs each step only after five further ones.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

OWN, FOLDER, STEPS = sys.argv[1], os.environ["FOLDER"], int(os.environ["STEPS"])
STOP = os.path.join(FOLDER, "STOP")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x):
        if dist.get_rank() == 1:
            # Some milliseconds in all, so that the loop exceeds what waits on a busy machine.
            wide = x.repeat(1, 4)
            for _ in range(200):
                torch.cosh(wide)
        return self.layers(x)


class LateEvent:
    """A stand-in for an event that a device passes late."""

    def record(self):
        self.left = 5

    def query(self):
        self.left -= 1
        return self.left < 0


def use_late_device():
    from paceline._trace import Trace

    make = Trace.__init__

    def made(self, *arguments):
        make(self, *arguments)
        self.is_on_device = True

    Trace.__init__ = made
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.cuda.Event = LateEvent


def loss_of(model, optimizer, number):
    generator = torch.Generator().manual_seed(1000 * dist.get_rank() + number % 50)
    x, y = torch.randn(32, 64, generator=generator), torch.randint(10, (32,), generator=generator)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(Model(), bucket_cap_mb=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    own = None
    if OWN == "always":
        own = profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=10**6))
        own.start()
    elif OWN == "within":
        own = profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=9, warmup=0, active=1))
        own.start()
    elif OWN == "late":
        use_late_device()
    number, losses, goes_on = 0, [], torch.ones(1)
    while goes_on.item():
        loss = loss_of(model, optimizer, number)
        number += 1
        if own is not None:
            own.step()
        # In the same step on each rank, and in every run.
        if number % 50 == 0:
            losses.append(loss.item())
            is_over = os.path.exists(STOP) or not os.path.isdir(FOLDER)
            goes_on = torch.tensor([0.0 if number >= STEPS and is_over else 1.0])
            dist.broadcast(goes_on, 0)
    if own is not None:
        own.stop()
        own.export_chrome_trace(os.path.join(FOLDER, "own-%d.json" % dist.get_rank()))
    first = STEPS // 50
    if dist.get_rank() == 0:
        print("loss %s" % " ".join("%.17g" % loss for loss in losses[:first]), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
