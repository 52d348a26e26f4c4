"""A job that ends right after a collective and, like many jobs, does not destroy its process groups."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
both = dist.new_group([0, 1])
model = DistributedDataParallel(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.ones(8, 256)).mean().backward()
    optimizer.step()
dist.all_reduce(torch.ones(4), group=both)
