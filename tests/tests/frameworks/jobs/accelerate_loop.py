"""A training loop with Accelerate: gradients of two batches, clipping, a scheduler, evaluation and checkpoints.

Usage: accelerate_loop.py STEPS FOLDER

Uses the GPU if there is one.
"""

import os
import sys
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

STEPS, FOLDER = int(sys.argv[1]), sys.argv[2]
BATCH, ACCUMULATED = 8, 2


class Samples(Dataset):
    def __len__(self):
        return BATCH * ACCUMULATED * STEPS * 2

    def __getitem__(self, number):
        if os.environ["RANK"] == "1":
            time.sleep(0.0015)  # planted
        x = torch.full((256,), float(number % 7))
        return x, x[:1]


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=ACCUMULATED)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50)
    batches = DataLoader(Samples(), batch_size=BATCH)
    held_out = DataLoader(TensorDataset(torch.ones(64, 256), torch.ones(64, 1)), batch_size=BATCH)
    model, optimizer, batches, held_out, scheduler = accelerator.prepare(
        model, optimizer, batches, held_out, scheduler
    )
    steps = 0
    for x, y in batches:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        steps += accelerator.sync_gradients
        if accelerator.sync_gradients and steps % 100 == 0:
            evaluate(accelerator, model, held_out)
            accelerator.save_state(os.path.join(FOLDER, "step-%d" % steps))
    accelerator.print("steps %d loss %.4f" % (steps, loss.item()))
    accelerator.wait_for_everyone()
    sys.stdout.flush()
    os._exit(0)


def evaluate(accelerator, model, held_out):
    model.eval()
    with torch.no_grad():
        for x, _ in held_out:
            accelerator.gather_for_metrics(model(x))
    model.train()


main()
