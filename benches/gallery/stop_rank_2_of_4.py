"""Rank 2 of four waits 12 s for something outside, once."""
from plain import *


def wait_for_lock():
    time.sleep(12)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    train(model, optimizer, *batch())
    if step == 90 and rank == 2:
        wait_for_lock()
end({"who": 2, "causes": ["hang"], "seconds": 12.0, "line": "stop_rank_2_of_4.py", "function": "wait_for_lock"}, None, rank == 2)
