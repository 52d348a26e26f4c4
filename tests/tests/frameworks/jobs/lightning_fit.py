"""Lightning's Trainer with a validation loop and checkpoints. Usage: lightning_fit.py STEPS FOLDER

Uses the GPU if there is one, as two nodes of one rank each; else two ranks of one node.
"""

import os
import sys
import time

import lightning
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

STEPS, FOLDER = int(sys.argv[1]), sys.argv[2]
BATCH = 8


class Samples(Dataset):
    def __len__(self):
        return BATCH * STEPS * 2

    def __getitem__(self, number):
        if dist.get_rank() == 1:
            time.sleep(0.003)  # planted
        x = torch.full((256,), float(number % 7))
        return x, x[:1]


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))

    def loss(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.layers(x), y)

    def training_step(self, batch, _):
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("held_out", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-4)


def main():
    torch.set_num_threads(1)
    held_out = TensorDataset(torch.ones(64, 256), torch.ones(64, 1))
    trainer = lightning.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=1 if torch.cuda.is_available() else 2,
        num_nodes=2 if torch.cuda.is_available() else 1,
        strategy="ddp",
        max_epochs=1,
        val_check_interval=100,
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        default_root_dir=FOLDER,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(Samples(), batch_size=BATCH), DataLoader(held_out, batch_size=BATCH))
    if trainer.is_global_zero:
        print("steps %d" % trainer.global_step, flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


main()
