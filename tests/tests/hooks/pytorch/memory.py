"""A DDP job on the host, with stand-ins for the driver of a GPU and for the figures of PyTorch's allocator. The forward pass of
rank 1 takes longer, its device runs hot, and its allocator runs out of memory in each step.
"""

import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist
from plain_ddp import Model
from torch.nn.parallel import DistributedDataParallel

STEPS = int(sys.argv[1])
GIB = 1 << 30
# The second device runs hot.
DEVICE = int(os.environ["RANK"])
IS_FULL = DEVICE == 1
retries = 0


def use_device():
    """Makes the stand-in the current CUDA device of this thread."""
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), DEVICE) == 0
    assert cuda.cuCtxSetCurrent(context) == 0


def memory_stats():
    def of_all(**figures):
        return {"all": figures, "large_pool": {}, "small_pool": {}}

    return {
        "allocated_bytes": of_all(current=3 * GIB, peak=5 * GIB),
        "reserved_bytes": of_all(current=6 * GIB, peak=6 * GIB),
        "inactive_split_bytes": of_all(current=GIB // 2, peak=GIB),
        "num_alloc_retries": retries,
        "num_ooms": 0,
    }


class Hungry(Model):
    def forward(self, batch):
        global retries
        if IS_FULL:
            retries += 1
            end = time.perf_counter() + 0.03
            while time.perf_counter() < end:
                pass
        return super().forward(batch)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    use_device()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Hungry(256, 4), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, target = torch.randn(16, 256), torch.randn(16, 256)
    torch.cuda.is_initialized = lambda: True
    torch.cuda.current_device = lambda: DEVICE
    torch.cuda.memory_stats_as_nested_dict = memory_stats
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch), target).backward()
        optimizer.step()
    dist.barrier()
    sys.stdout.flush()
    # Avoids gloo's shutdown, which sometimes fails.
    os._exit(0)


main()
