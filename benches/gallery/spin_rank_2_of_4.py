"""Rank 2 of four is busy for 40 ms in every step."""
from plain import *


def augment():
    busy(0.04)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(150):
    x, y = batch()
    if rank == 2:
        augment()
    train(model, optimizer, x, y)
end({"who": 2, "causes": ["host", "compute"], "seconds": 0.04, "line": "plain.py", "function": "busy"}, None, rank == 2)
