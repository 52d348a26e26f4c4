"""All ranks average twenty metrics after each step, one by one."""
from plain import *


def average(metrics):
    for metric in metrics:
        dist.all_reduce(metric)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = Clock()
for step in range(200):
    train(model, optimizer, *batch())
    with clock:
        average([torch.rand(1) for _ in range(20)])
end({"who": "all", "causes": ["communication"]}, clock, rank == 0)
