"""An unmodified PyTorch job of two pipeline stages, in which `torch.sh` observes sends and receives."""

import argparse
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
arguments = parser.parse_args()

MICRO_BATCHES = 4
on_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if on_gpu else "gloo")
device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
rank = dist.get_rank()
torch.manual_seed(rank)
stage = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).to(device)
optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
batches = torch.randn(MICRO_BATCHES, 256, 1024, device=device)


def forward(batch):
    """Runs a stage. The first stage sends its result, and the second stage receives it."""
    if rank == 0:
        result = stage(batch)
        dist.send(result.detach(), 1)
        return None, result
    received = torch.empty_like(batch)
    dist.recv(received, 0)
    received.requires_grad_()
    return received, stage(received)


def backward(received, result):
    """Runs a backward pass. The second stage sends gradients back to the first."""
    if rank == 0:
        gradient = torch.empty_like(result)
        dist.recv(gradient, 1)
        result.backward(gradient)
    else:
        result.square().mean().backward()
        dist.send(received.grad, 0)


begin = time.perf_counter()
for _ in range(arguments.steps):
    optimizer.zero_grad()
    for work in [forward(batch) for batch in batches]:
        backward(*work)
    norm = sum(parameter.grad.square().sum() for parameter in stage.parameters())
    dist.all_reduce(norm)
    optimizer.step()
seconds = time.perf_counter() - begin
print(f"gradient norm: {norm.sqrt().item():.6f} after {seconds:.1f} s", flush=True)
dist.destroy_process_group()
