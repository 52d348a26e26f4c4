"""Four micro-batches per step with no_sync; rank 1 takes 20 ms longer for each."""
from plain import *


def augment():
    busy(0.02)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(120):
    for _ in range(3):
        with model.no_sync():
            if rank == 1:
                augment()
            x, y = batch()
            F.cross_entropy(model(x), y).backward()
    if rank == 1:
        augment()
    train(model, optimizer, *batch())
end({"who": 1, "causes": ["host", "compute"], "seconds": 0.08, "line": "plain.py", "function": "busy"}, None, rank == 1)
