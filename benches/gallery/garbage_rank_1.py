"""Rank 1 holds many objects, and collects garbage every 12 steps."""
import gc

from plain import *

rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
held = [[index] for index in range(1_500_000)] if rank == 1 else []
clock = Clock()
for step in range(1, 301):
    train(model, optimizer, *batch())
    if step % 12 == 0 and rank == 1:
        with clock:
            gc.collect()
end({"who": 1, "causes": ["garbage_collection"], "every": 12, "line": "garbage_rank_1.py"}, clock, rank == 1)
