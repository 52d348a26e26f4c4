"""Rank 1 keeps objects of each step, so that Python's own collections become long. The script times them by gc.callbacks."""
import gc

from plain import *

rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
held = [[index] for index in range(1_000_000)] if rank == 1 else []
clock = Clock()


def time_collection(phase, about):
    if about["generation"] == 2:
        clock.__enter__() if phase == "start" else clock.__exit__()


gc.collect()
gc.callbacks.append(time_collection)
for step in range(300):
    train(model, optimizer, *batch())
    if rank == 1:
        held += [[index] for index in range(12_000)]
end({"who": 1, "causes": ["garbage_collection"], "each": True, "line": "garbage_automatic_rank_1.py"}, clock, rank == 1)
