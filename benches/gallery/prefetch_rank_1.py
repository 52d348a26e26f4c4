"""Rank 1 reads the next batch between forward and backward, as nanoGPT does, and it takes 15 ms to arrive."""
from plain import *

clock = Clock()


def next_batch():
    if rank == 1:
        with clock:
            time.sleep(0.015)
    return batch()


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
train_ahead(model, optimizer, next_batch, 300)
end({"who": 1, "causes": ["host", "input"], "line": "prefetch_rank_1.py", "function": "next_batch"}, clock, rank == 1)
