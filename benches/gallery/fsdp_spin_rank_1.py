"""FSDP2, and a rank that is busy for 30 ms in every step."""
from plain import *


def augment():
    busy(0.03)


rank, _ = begin()
model = sharded()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(150):
    x, y = batch()
    if rank == 1:
        augment()
    train(model, optimizer, x, y)
end({"who": 1, "causes": ["host", "compute"], "seconds": 0.03, "line": "plain.py", "function": "busy"}, None, rank == 1)
