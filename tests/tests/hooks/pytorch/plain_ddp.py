"""A plain PyTorch DDP script, as in a tutorial. No line of its code refers to Paceline."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

# The planted trouble: every forward of this rank takes this much longer.
SLOW_RANK, SLOW_SECONDS = int(os.environ.get("SLOW_RANK", "-1")), float(os.environ.get("SLOW_SECONDS", "0"))


class Model(torch.nn.Module):
    def __init__(self, width=1024, depth=8):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(depth)))

    def forward(self, batch):
        if dist.get_rank() == SLOW_RANK:
            time.sleep(SLOW_SECONDS)
        return self.layers(batch)


def main():
    epochs = int(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(2048, 1024), torch.randn(2048, 1024))
    loader = DataLoader(data, batch_size=64, sampler=DistributedSampler(data, shuffle=False))
    model = DistributedDataParallel(Model(), bucket_cap_mb=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for batch, target in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(batch), target)
            loss.backward()
            optimizer.step()
    total = sum(parameter.detach().double().sum() for parameter in model.parameters())
    if dist.get_rank() == 0:
        print("loss %.17g, sum of parameters %.17g" % (loss.item(), total.item()), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
