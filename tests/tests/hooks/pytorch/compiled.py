"""Compiles, copies, pickles and scripts DDP modules. Prints what must not depend on an observer.

Usage: compiled.py BACKEND
"""

import copy
import hashlib
import io
import sys
import warnings

import torch
import torch.distributed as dist
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel

BACKEND = sys.argv[1]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 512), torch.nn.Linear(512, 512)
        self.last = torch.nn.Linear(512, 10)

    def forward(self, x):
        x = torch.nn.functional.gelu(self.first(x))
        return self.last(torch.nn.functional.gelu(self.second(x)))


def made():
    torch.manual_seed(0)
    return Model()


def trained(model, steps=60):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(32, 64), torch.randint(10, (32,))
    for step in range(steps):
        model.train()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            model.eval()
            with torch.no_grad():
                model(x)
    return loss.item()


def pickled(module):
    buffer = io.BytesIO()
    torch.save(module, buffer)
    return hashlib.sha256(buffer.getvalue()).hexdigest()[:16]


def main():
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    lines = []
    for wrap in (
        lambda model: torch.compile(DistributedDataParallel(model, bucket_cap_mb=1), backend=BACKEND),
        lambda model: DistributedDataParallel(torch.compile(model, backend=BACKEND), bucket_cap_mb=1),
    ):
        torch._dynamo.reset()
        counters.clear()
        loss = trained(wrap(made()))
        stats = counters["stats"]
        lines.append("%.17g calls %d graphs %d breaks %d" % (
            loss, stats["calls_captured"], stats["unique_graphs"], sum(counters["graph_break"].values())
        ))
    plain = DistributedDataParallel(made())
    lines.append("%.17g" % trained(plain, 600))
    lines.append(pickled(plain.module) + " " + pickled(copy.deepcopy(plain.module)) + " " + pickled(plain))
    lines.append(str(torch.jit.script(plain.module).code.count("\n")))
    if dist.get_rank() == 0:
        print("loss " + "; ".join(lines), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
