"""An unmodified training loop as in timm: `torch.compile`, mixed precision with a scaled loss, pinned memory, worker processes.

Usage: vision.py STEPS FOLDER
"""

import os
import sys
import time

import timm
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEPS, FOLDER = int(sys.argv[1]), sys.argv[2]
BATCH = 16


class Images(Dataset):
    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, number):
        if dist.get_rank() == 1:
            time.sleep(0.015)  # planted
        return torch.full((3, 128, 128), number % 7 / 7), number % 10


def main():
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    model = timm.create_model("resnet10t", num_classes=10).to(device, memory_format=torch.channels_last)
    model = torch.compile(DistributedDataParallel(model, bucket_cap_mb=4))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    scaler = torch.amp.GradScaler("cuda")
    loader = DataLoader(Images(), batch_size=BATCH, num_workers=2, pin_memory=True, multiprocessing_context="fork")
    for images, labels in loader:
        images = images.to(device, memory_format=torch.channels_last, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), f"{FOLDER}/vision.pt")
        print(f"steps {STEPS} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
