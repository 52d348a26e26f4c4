"""FSDP2 (`fully_shard`): parameters are gathered and gradients scattered per layer. Usage: fsdp2.py STEPS FOLDER

Uses the GPU if there is one.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset

STEPS = int(sys.argv[1])
BATCH = 8
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Samples(Dataset):
    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, number):
        if dist.get_rank() == 1:
            time.sleep(0.003)  # planted
        x = torch.full((256,), float(number % 7))
        return x, x[:1]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    mesh = init_device_mesh(DEVICE, (int(os.environ["WORLD_SIZE"]),))
    layers = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(3)]
    model = nn.Sequential(*layers, nn.Linear(256, 1)).to(DEVICE)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    steps = 0
    for x, y in DataLoader(Samples(), batch_size=BATCH):
        loss = nn.functional.mse_loss(model(x.to(DEVICE)), y.to(DEVICE))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    if dist.get_rank() == 0:
        print("steps %d loss %.4f" % (steps, loss.item()), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


main()
