"""DeepSpeed's engine with ZeRO and the gradients of two batches. Usage: deepspeed_zero.py STEPS FOLDER STAGE"""

import os
import sys
import time

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, FOLDER, STAGE = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
BATCH, ACCUMULATED = 8, 2


class Samples(Dataset):
    def __len__(self):
        return BATCH * ACCUMULATED * STEPS

    def __getitem__(self, number):
        if dist.get_rank() == 1:
            time.sleep(0.0015)  # planted
        x = torch.full((256,), float(number % 7))
        return x, x[:1]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    deepspeed.init_distributed(dist_backend="gloo")
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": ACCUMULATED,
        "gradient_clipping": 1.0,
        "steps_per_print": 1000,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": STAGE},
    }
    # Two groups, as usual: ZeRO updates one after the other.
    weights = {"params": [one for one in model.parameters() if one.dim() > 1], "weight_decay": 0.1}
    others = {"params": [one for one in model.parameters() if one.dim() == 1], "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([weights, others], 1e-4)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for x, y in DataLoader(Samples(), batch_size=BATCH):
        loss = nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)
        is_last = engine.is_gradient_accumulation_boundary()
        engine.step()
        if is_last and engine.global_steps % 100 == 0:
            engine.save_checkpoint(FOLDER)
    if dist.get_rank() == 0:
        print("steps %d loss %.4f" % (engine.global_steps, loss.item()), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


main()
