"""An unmodified PyTorch DDP job, which `torch.sh` observes."""

import argparse
import contextlib
import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--warmup", type=int, default=20, help="steps before the profiled ones")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--slow-input", type=float, default=0, help="milliseconds that rank 1 takes to read a batch")
parser.add_argument("--profile", metavar="FOLDER", help="profile ten steps with torch.profiler, a file per rank")
arguments = parser.parse_args()

dist.init_process_group("nccl")
torch.manual_seed(0)
device = torch.device("cuda", 0)
layers = [torch.nn.Linear(2048, 2048) for _ in range(4)]
model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device), bucket_cap_mb=25)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(512, 2048, device=device)


class Batches(torch.utils.data.IterableDataset):
    """Batches that take time to read."""

    def __iter__(self):
        while True:
            time.sleep(arguments.slow_input / 1e3 if dist.get_rank() == 1 else 0)
            yield batch.cpu()


loader = iter(torch.utils.data.DataLoader(Batches(), batch_size=None)) if arguments.slow_input else None


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        read = batch if loader is None else next(loader).to(device)
        loss = model(read).square().mean()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    return loss.item()


train(arguments.warmup)
profile = contextlib.nullcontext()
if arguments.profile:
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
with profile:
    train(10)
if arguments.profile:
    profile.export_chrome_trace(f"{arguments.profile}/{dist.get_rank()}.json")
begin = time.perf_counter()
loss = train(arguments.steps)
seconds = (time.perf_counter() - begin) / arguments.steps
if int(os.environ["RANK"]) == 0:
    values = b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    digest = hashlib.sha256(values).hexdigest()[:16]
    print(f"step seconds: {seconds:.9f} loss: {loss:.9g} parameters: {digest}", flush=True)
dist.destroy_process_group()
