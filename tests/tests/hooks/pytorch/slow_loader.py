"""A plain PyTorch DDP script with four buckets of 1 MiB. One of its ranks loads batches more slowly.

Usage: slow_loader.py STEPS RANK SECONDS
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEPS, SLOW_RANK, SLOW_SECONDS = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
BATCH, WIDTH = 256, 512


class Batches(Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, number):
        if number >= STEPS:
            raise IndexError
        if dist.get_rank() == SLOW_RANK:
            time.sleep(SLOW_SECONDS)
        return torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layers = (torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch, target in DataLoader(Batches(), batch_size=None):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch), target).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
