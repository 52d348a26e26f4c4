"""DDP with an embedding whose gradient is sparse. Its rows differ in number from step to step and from rank to rank."""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(1000, 16, sparse=True)
        self.layer = torch.nn.Linear(16, 16)

    def forward(self, batch):
        return self.layer(self.words(batch)).sum()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for _ in range(int(sys.argv[1])):
        time.sleep(0.02)  # reads its batch
        batch = torch.randint(0, 1000, (int(torch.randint(40, 200, ())),))
        optimizer.zero_grad()
        model(batch).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
