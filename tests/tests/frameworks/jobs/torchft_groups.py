"""One replica group of torchft with one process: gradients are averaged over the groups that are alive.

Usage: torchft_groups.py STEPS GROUP LIGHTHOUSE
"""

import os
import socket
import sys
import time

STEPS, GROUP = int(sys.argv[1]), int(sys.argv[2])
os.environ["TORCHFT_LIGHTHOUSE"] = sys.argv[3]
with socket.socket() as free:
    free.bind(("", 0))
    PORT = free.getsockname()[1]
# What torchrun sets for each replica group.
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(PORT), RANK="0", WORLD_SIZE="1")

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

BATCH = 8


class Samples(Dataset):
    def __len__(self):
        return BATCH * STEPS * 2

    def __getitem__(self, number):
        if GROUP == 1:
            time.sleep(0.003)  # planted
        x = torch.full((256,), float(number % 7))
        return x, x[:1]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _store = dist.TCPStore("127.0.0.1", PORT, is_master=True, wait_for_workers=False)
    layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    inner = torch.optim.AdamW(layers.parameters(), 1e-4)

    def state():
        return {"model": layers.state_dict(), "optimizer": inner.state_dict()}

    def load(state):
        layers.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=30)),
        min_replica_size=2,
        load_state_dict=load,
        state_dict=state,
        replica_id="group_%d" % GROUP,
        timeout=timedelta(seconds=30),
    )
    model, optimizer = DistributedDataParallel(manager, layers), Optimizer(manager, inner)
    for x, y in DataLoader(Samples(), batch_size=BATCH):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if manager.current_step() >= STEPS:
            break
    print("steps %d" % manager.current_step(), flush=True)
    os._exit(0)


main()
