"""A small DDP job that prints a hash of all its losses and parameters.

Usage: exact.py STEPS [SERVER]. With a server, the job calls `paceline.watch`.
"""

import hashlib
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS, BATCH, WIDTH = int(sys.argv[1]), 16, 128


def bytes_of(tensor):
    return tensor.detach().contiguous().numpy().tobytes()


def main():
    if len(sys.argv) > 2:
        import paceline

        paceline.watch(server=sys.argv[2], name="exact")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    data = TensorDataset(torch.randn(2 * BATCH * STEPS, WIDTH), torch.randint(10, (2 * BATCH * STEPS,)))
    batches = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
    # Buffers, random numbers and several buckets.
    layers = nn.Linear(WIDTH, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 256), nn.Linear(256, 10)
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = hashlib.sha256()
    for batch, target in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), target)
        loss.backward()
        optimizer.step()
        seen.update(bytes_of(loss))
    for value in model.state_dict().values():
        seen.update(bytes_of(value))
    own = torch.tensor(list(seen.digest()), dtype=torch.uint8)
    both = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(both, own)
    if dist.get_rank() == 0:
        print("loss %.17g of %s" % (loss.item(), ", ".join(bytes(one.tolist()).hex() for one in both)), flush=True)
    dist.barrier()
    # Avoids gloo's shutdown, which sometimes fails.
    os._exit(0)


main()
