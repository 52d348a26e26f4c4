"""An unmodified PyTorch DDP job whose rank 1 has too little device memory, which `torch.sh` observes.

The memory of rank 1 is limited, and its forward pass allocates blocks of different sizes. The blocks that the allocator keeps do not
fit later requests. It must return them to the device and try again, which stops the device.
"""

import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 300
MIB = 1 << 20
# Sizes of the blocks of a forward pass. Two or three of them fit into the limit.
BLOCKS = [(1100 + 60 * number) * MIB for number in range(12)]
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

    def forward(self, batch):
        if dist.get_rank() == 1:
            for block in BLOCKS:
                torch.empty(block, dtype=torch.uint8, device=device).fill_(1)
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
