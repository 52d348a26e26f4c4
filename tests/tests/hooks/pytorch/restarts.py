"""A DDP job that torchrun restarts: rank 1 fails after 200 steps. In the second attempt, all ranks train 150 steps."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256) for _ in range(6)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.25)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for _ in range([200, 150][attempt]):
        time.sleep(0.02)
        optimizer.zero_grad()
        loss = model(torch.randn(64, 256)).square().mean()
        loss.backward()
        optimizer.step()
    if attempt == 0 and dist.get_rank() == 1:
        sys.exit("planted")
    print("attempt %d ends" % attempt, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
