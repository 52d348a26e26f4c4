"""DDP with an embedding whose gradient is sparse. Its rows differ in number from step to step and from rank to rank.

Usage: sparse.py STEPS [delayed]. With `delayed`, the gradient is dense, and its all-reduce is delayed.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self, is_sparse):
        super().__init__()
        self.words = torch.nn.Embedding(1000, 16, sparse=is_sparse)
        self.layer = torch.nn.Linear(16, 16)

    def forward(self, batch):
        return self.layer(self.words(batch)).sum()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    is_delayed = sys.argv[2:] == ["delayed"]
    model = Model(is_sparse=not is_delayed)
    delayed = {}
    if is_delayed:
        words = model.words.weight
        delayed = {"delay_all_reduce_named_params": [("words.weight", words)], "param_to_hook_all_reduce": words}
    model = DistributedDataParallel(model, **delayed)
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
