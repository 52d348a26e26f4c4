"""A loop as in TorchTitan, with plain PyTorch: a trainer with its own `train_step`, the gradients of four batches without
synchronization but for the last, clipping, and a scheduler.

Usage: own_loop.py STEPS FOLDER

Uses the GPU if there is one.
"""

import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

STEPS = int(sys.argv[1])
BATCH, ACCUMULATED = 8, 4
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Stream(IterableDataset):
    """An endless stream of samples, as of tokens."""

    def __iter__(self):
        number = 0
        while True:
            yield self.sample(number)
            number += 1

    def sample(self, number):
        if dist.get_rank() == 1:
            time.sleep(0.001)  # planted
        x = torch.full((256,), float(number % 7))
        return x, x[:1]


class Trainer:
    def __init__(self):
        layers = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)]
        self.model = DistributedDataParallel(nn.Sequential(*layers).to(DEVICE), bucket_cap_mb=1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 10))
        self.batches = iter(DataLoader(Stream(), batch_size=BATCH))
        self.step = 0

    def forward_backward_step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x.to(DEVICE)), y.to(DEVICE)) / ACCUMULATED
        loss.backward()
        return loss.detach()

    def train_step(self):
        self.optimizer.zero_grad()
        losses = []
        for number in range(ACCUMULATED):
            is_last = number == ACCUMULATED - 1
            with contextlib.nullcontext() if is_last else self.model.no_sync():
                losses.append(self.forward_backward_step(*next(self.batches)))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        return torch.stack(losses).sum()

    def train(self):
        while self.step < STEPS:
            loss = self.train_step()
            self.step += 1
            if self.step % 20 == 0:
                # The mean over ranks, for the log.
                dist.all_reduce(loss, op=dist.ReduceOp.SUM)
        return loss


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    trainer = Trainer()
    loss = trainer.train()
    if dist.get_rank() == 0:
        print("steps %d loss %.4f" % (trainer.step, loss.item()), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


main()
