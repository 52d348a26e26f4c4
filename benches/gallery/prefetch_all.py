"""All ranks read the next batch between forward and backward, as nanoGPT does, and it takes 15 ms to arrive."""
from plain import *

clock = Clock()


def next_batch():
    with clock:
        time.sleep(0.015)
    return batch()


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
train_ahead(model, optimizer, next_batch, 200)
end({"who": "all", "causes": ["host", "input"], "line": "prefetch_all.py", "function": "next_batch"}, clock, rank == 0)
