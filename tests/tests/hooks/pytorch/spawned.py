"""A job whose first process starts the ranks. No launcher sets ranks; they are known only to the process group.

Usage: spawned.py STEPS [killed]

With `killed`, the kernel ends rank 1 in the last step.
"""

import os
import signal
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

RANKS = 3


def train(rank, meeting, steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=RANKS)
    model = DistributedDataParallel(torch.nn.Linear(512, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        if sys.argv[2:] == ["killed"] and (rank, step) == (1, steps - 1):
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(torch.ones(64, 512)).mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.NamedTemporaryFile() as meeting:
        torch.multiprocessing.spawn(train, args=(meeting.name + ".store", int(sys.argv[1])), nprocs=RANKS)
