"""Trains a model that pauses at times: for a checkpoint, an evaluation, a garbage collection, and a compilation.

Rank 0 sleeps in one step. A comment marks the lines that lead to a pause.
"""

import gc
import io
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

STEPS = int(sys.argv[1])

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]), bucket_cap_mb=1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
held_out = DataLoader(torch.randn(256, 512), batch_size=32)
objects = [[number] for number in range(400_000)]
gc.disable()


def evaluate(evaluated):
    with torch.no_grad():
        return sum(evaluated(batch).square().mean().item() for batch in held_out)  # evaluation


for step in range(STEPS):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 512)).square().mean()
    loss.backward()
    optimizer.step()
    if step % 4 == 1:
        gc.collect()
    if step % 4 == 2:
        torch.save({"model": model.state_dict(), "more": torch.zeros(2_000_000)}, io.BytesIO())  # checkpoint
    if step % 8 == 3:
        evaluate(model)
    if step % 8 == 7:
        # As many do, because the wrapper may communicate.
        model.eval()  # evaluation
        evaluate(model.module)
        model.train()
    if step == STEPS // 2:
        torch.compile(lambda x: x.sin() + x.cos(), backend="eager")(torch.randn(8))  # compilation
    if step == STEPS // 2 + 10 and dist.get_rank() == 0:
        time.sleep(1.5)  # once

if dist.get_rank() == 0:
    print("loss", loss.item(), flush=True)
dist.barrier()
os._exit(0)
