"""A compiled model, and a rank that is busy for 30 ms in every step."""
from plain import *


def augment():
    busy(0.03)


rank, _ = begin()
model = torch.compile(parallel())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    x, y = batch()
    if rank == 1:
        augment()
    train(model, optimizer, x, y)
end({"who": 1, "causes": ["host", "compute"], "seconds": 0.03, "line": "plain.py", "function": "busy"}, None, rank == 1)
