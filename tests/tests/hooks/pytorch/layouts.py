"""A DDP job with buffers, several buckets and, on request, unused parameters. It prints what PyTorch itself says about its buckets."""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self, has_unused):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(300, 300) for _ in range(3)))
        # It has buffers, which are broadcast before each forward pass.
        self.norm = torch.nn.BatchNorm1d(300)
        self.head = torch.nn.Linear(300, 10)
        if has_unused:
            self.spare = torch.nn.Linear(7, 7)

    def forward(self, batch):
        return self.head(self.norm(self.layers(batch)))


def sizes(text):
    return [int(size) for size in text.split(",")]


def main():
    steps, has_unused = int(sys.argv[1]), "unused" in sys.argv[2:]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Model(has_unused), bucket_cap_mb=0.5, find_unused_parameters=has_unused)
    first = sizes(model._get_ddp_logging_data()["bucket_sizes"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(16, 300)
    for _ in range(steps):
        time.sleep(0.02)  # reads its batch
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
    names = [name for name, _ in model.module.named_parameters()]
    told = model._get_ddp_logging_data()
    buckets = told.get("rebuilt_per_bucket_param_indices", "")
    rebuilt = [[names[int(at)] for at in bucket.split()] for bucket in buckets.split(",") if bucket]
    unused = [name for name, parameter in model.module.named_parameters() if parameter.grad is None]
    if dist.get_rank() == 0:
        print("loss %.17g" % loss.item(), flush=True)
        print("told " + json.dumps({"first": first, "rebuilt": rebuilt, "unused": unused, "names": names}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
