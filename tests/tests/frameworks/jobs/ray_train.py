"""Ray Train with two workers. Everything for Paceline is `paceline.watch()` in the training function.

Usage: ray_train.py STEPS FOLDER SERVER RUN
"""

import sys
import time

import ray
import torch
from ray import train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, FOLDER = int(sys.argv[1]), sys.argv[2]
BATCH = 8


class Samples(Dataset):
    def __init__(self, steps):
        self.steps = steps

    def __len__(self):
        # Ray shares the samples out to the two workers.
        return BATCH * self.steps * 2

    def __getitem__(self, number):
        if train.get_context().get_world_rank() == 1:
            time.sleep(0.003)  # planted
        x = torch.full((256,), float(number % 7))
        return x, x[:1]


def train_func(config):
    import paceline

    paceline.watch(server=config["server"], run=config["run"], name="ray_train")
    torch.set_num_threads(1)
    layers = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)]
    model = prepare_model(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    steps = 0
    for x, y in prepare_data_loader(DataLoader(Samples(config["steps"]), batch_size=BATCH)):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % 100 == 0:
            train.report({"loss": loss.item()})
    if train.get_context().get_world_rank() == 0:
        print("steps %d" % steps, flush=True)


def main():
    server, run = sys.argv[3], sys.argv[4]
    ray.init(num_cpus=3, include_dashboard=False, object_store_memory=200 << 20)
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"steps": STEPS, "server": server, "run": run},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        torch_config=TorchConfig(backend="gloo"),
        run_config=RunConfig(storage_path=FOLDER),
    )
    trainer.fit()
    ray.shutdown()


if __name__ == "__main__":
    main()
