"""DDP in which the device of rank 1 has no memory left in some step.

Usage: fails.py STEP [waits|killed]

With `waits`, rank 0 then waits for a signal, as a rank waits for a lost peer over NCCL. With `killed`, the kernel ends rank 1, as
it does when the host has no memory left.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def allocate():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee the documentation.")


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step in range(int(sys.argv[1]) + 1):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
    if dist.get_rank() == 1:
        if sys.argv[2:] == ["killed"]:
            os.kill(os.getpid(), signal.SIGKILL)
        allocate()
    if sys.argv[2:] == ["waits"]:
        signal.pause()
    dist.barrier()


if __name__ == "__main__":
    main()
