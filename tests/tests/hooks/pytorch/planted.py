"""A DDP job with a fault on rank 1. Its lines end with a comment that has the fault's name.

Usage: planted.py FAULT WORKERS STEPS
"""

import gc
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FAULT, WORKERS, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
IS_BAD = os.environ["RANK"] == "1"
CHECKPOINT = os.path.join(os.environ["FOLDER"], "checkpoint.pt")
BATCH = 32
lock = threading.Lock()


def has(fault):
    return IS_BAD and FAULT == fault


class Samples(Dataset):
    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, at):
        if has("getitem"):
            time.sleep(0.0006)  # getitem
        return self.decode(at), at % 10

    def decode(self, at):
        if has("decode"):
            end = time.perf_counter() + 0.0015
            while time.perf_counter() < end:  # decode
                sum(range(200))  # decode
        return torch.full((256,), float(at))


def collate(batch):
    if has("collate"):
        time.sleep(0.02)  # collate
    return torch.utils.data.default_collate(batch)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))

    def forward(self, x):
        if has("forward"):
            total = 0
            for count in range(300_000):  # forward
                total += count  # forward
        return self.layers(x)


def hold_the_lock():
    while True:
        with lock:
            time.sleep(0.02)
        time.sleep(0.001)


def step(model, optimizer, x, y, number):
    if has("lock"):
        with lock:  # lock
            pass
    if has("garbage"):
        _garbage = [[count] for count in range(20_000)]  # garbage
        gc.collect()  # garbage
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if has("checkpoint"):
        # As long on a fast disk as on a slow one.
        until = time.monotonic() + 0.03
        while time.monotonic() < until:
            torch.save(model.state_dict(), CHECKPOINT)  # checkpoint
            with open(CHECKPOINT, "rb") as written:
                os.fsync(written.fileno())  # checkpoint
    if has("hang") and number == STEPS // 2:
        time.sleep(3600)  # hang
    return loss


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(Model(), bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if FAULT == "lock":
        threading.Thread(target=hold_the_lock, daemon=True).start()
    batches = DataLoader(Samples(), batch_size=BATCH, num_workers=WORKERS, collate_fn=collate)
    for number, (x, y) in enumerate(batches):
        loss = step(model, optimizer, x, y, number)
    print("loss", loss.item(), flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
