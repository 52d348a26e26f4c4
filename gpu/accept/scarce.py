"""An unmodified PyTorch DDP job whose rank 1 has too little device memory, which `torch.sh` observes.

The memory of rank 1 is limited, and the blocks that its forward pass allocates grow, as with batches of longer and longer texts. No
block that the allocator keeps is large enough for the next request, and the limit has no room for both. The allocator must return the
kept one to the device and try again, which stops the device.
"""

import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 300
MIB = 1 << 20
# The size of the first block, and the growth from one to the next: the allocator rounds to 2 MiB. Only one fits into the limit.
FIRST, GROWTH, BLOCKS_PER_STEP = 2000 * MIB, 2 * MIB, 2
LIMIT = 4000 * MIB

dist.init_process_group("nccl")
torch.manual_seed(0)
device = torch.device("cuda", 0)
if dist.get_rank() == 1:
    torch.cuda.set_per_process_memory_fraction(LIMIT / torch.cuda.get_device_properties(device).total_memory)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)])
        self.blocks = 0

    def forward(self, batch):
        if dist.get_rank() == 1:
            for _ in range(BLOCKS_PER_STEP):
                torch.empty(FIRST + self.blocks * GROWTH, dtype=torch.uint8, device=device).fill_(1)
                self.blocks += 1
        return self.layers(batch)


model = DistributedDataParallel(Model().to(device), bucket_cap_mb=8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(256, 1024, device=device)
for _ in range(STEPS):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
found = torch.cuda.memory_stats()
figures = {
    "allocated_bytes": found["allocated_bytes.all.current"],
    "allocated_peak_bytes": found["allocated_bytes.all.peak"],
    "reserved_bytes": found["reserved_bytes.all.current"],
    "inactive_split_bytes": found["inactive_split_bytes.all.current"],
    "allocation_retries": found["num_alloc_retries"],
    "out_of_memory_errors": found["num_ooms"],
}
with open(f"{os.environ['FOLDER']}/memory-{dist.get_rank()}.json", "w") as file:
    json.dump(figures, file)
dist.barrier()
dist.destroy_process_group()
