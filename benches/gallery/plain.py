"""What the scripts of the gallery share: a model, a data set, and the truth that a script states about itself.

Each script is a plain PyTorch job that knows nothing of Paceline. It times its own trouble with its own clock, and prints that as
its last line, for the bench to compare with the report's first sentence.
"""

import json
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Perceptron(nn.Module):
    def __init__(self, width=512, depth=3):
        super().__init__()
        sizes = [128] + [width] * depth + [10]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Samples(Dataset):
    def __init__(self, count=4096):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((128,), index % 11 / 11), index % 10


def begin():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def spawn(main, ranks=2):
    """Starts ranks as scripts without torchrun do. `main` gets the rank, and calls `begin` first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_spawned, (main, ranks, port), nprocs=ranks)


def _spawned(rank, main, ranks, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    main(rank)


def parallel(model=None):
    return DistributedDataParallel(model or Perceptron())


def sharded(model=None):
    """Shards a model by FSDP2, layer by layer."""
    model = model or Perceptron()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def loader(samples, batch=32, **options):
    sampler = DistributedSampler(samples)
    return DataLoader(samples, batch_size=batch, sampler=sampler, **options)


def batch(size=32):
    return torch.randn(size, 128), torch.randint(0, 10, (size,))


def train(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


class Gan:
    """A generator and a discriminator, each in a module of its own, as GANs are written."""

    def __init__(self):
        self.generator, self.discriminator = (parallel(Perceptron(width)) for width in (384, 256))
        of = lambda model: torch.optim.Adam(model.parameters(), lr=1e-4)
        self.of_generator, self.of_discriminator = of(self.generator), of(self.discriminator)

    def judge(self, samples, label):
        judged = self.discriminator(samples)[:, 0]
        return F.binary_cross_entropy_with_logits(judged, torch.full_like(judged, label))

    def step(self, real, between=lambda: None):
        """`between` is called after the discriminator has seen what is real."""
        self.discriminator.zero_grad()
        self.judge(real, 1.0).backward()
        between()
        made = self.generator(torch.randn_like(real)).repeat(1, 13)[:, :128]
        self.judge(made.detach(), 0.0).backward()
        self.of_discriminator.step()
        self.generator.zero_grad()
        self.judge(made, 1.0).backward()
        self.of_generator.step()


def train_ahead(model, optimizer, next_batch, steps):
    """Trains, and reads each next batch between forward and backward, as nanoGPT does."""
    x, y = next_batch()
    for step in range(steps):
        loss = F.cross_entropy(model(x), y)
        x, y = next_batch()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def busy(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Clock:
    """Times what a script plants, one `with` for each time."""

    def __init__(self):
        self.times = []

    def __enter__(self):
        self.began = time.perf_counter()

    def __exit__(self, *_):
        self.times.append(time.perf_counter() - self.began)

    def of_slowest_rank(self):
        """Makes each time that of the rank that it takes longest. All ranks must call this."""
        all_times = [None] * dist.get_world_size()
        dist.all_gather_object(all_times, self.times)
        self.times = [max(times) for times in zip(*all_times)]


def state(truth, clock=None, speaks=True):
    """Prints the truth, from the one rank that knows it. With `times`, the trouble comes so often in each step."""
    if speaks:
        times = clock.times[1:] if clock else []
        mean = sum(times) / len(times) * truth.get("times", 1) if times else None
        print("TRUTH " + json.dumps({**truth, "mean_s": mean}), flush=True)


def end(truth, clock=None, speaks=True):
    state(truth, clock, speaks)
    dist.barrier()
    dist.destroy_process_group()
