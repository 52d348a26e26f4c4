"""Rank 1 is slower for 120 of 320 steps, and then as fast as before."""
from plain import *


def migrate():
    busy(0.04)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(320):
    if rank == 1 and 80 <= step < 200:
        migrate()
    train(model, optimizer, *batch())
end({"who": 1, "causes": ["host", "compute"], "seconds": 0.04, "line": "plain.py", "function": "busy"}, None, rank == 1)
