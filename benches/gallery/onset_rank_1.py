"""Rank 1 begins to augment its batches in step 120 of 300, and goes on to the end."""
from plain import *


def augment():
    busy(0.03)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(300):
    if rank == 1 and step >= 120:
        augment()
    train(model, optimizer, *batch())
end({"who": 1, "causes": ["host", "compute"], "seconds": 0.03, "line": "plain.py", "function": "busy"}, None, rank == 1)
