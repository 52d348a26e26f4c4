"""Two DDP modules in one process. Each is in the mode of evaluation while the other one trains, and none is ever evaluated."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(sys.argv[1])

dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
generator, judge = (DistributedDataParallel(torch.nn.Linear(256, 256)) for _ in range(2))
optimizers = [torch.optim.SGD(model.parameters(), lr=1e-3) for model in (generator, judge)]
for _ in range(STEPS):
    for trained, other, optimizer in zip((generator, judge), (judge, generator), optimizers):
        trained.train()
        other.eval()
        optimizer.zero_grad()
        with torch.no_grad():
            target = other.module(torch.randn(16, 256))
        torch.nn.functional.mse_loss(trained(torch.randn(16, 256)), target).backward()
        optimizer.step()
if dist.get_rank() == 0:
    print("loss 0", flush=True)
dist.barrier()
os._exit(0)
