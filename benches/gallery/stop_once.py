"""Rank 1 waits 14 s for something outside, once, and goes on."""
from plain import *


def wait_for_quota():
    time.sleep(14)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(400):
    train(model, optimizer, *batch())
    if step == 150 and rank == 1:
        wait_for_quota()
end({"who": 1, "causes": ["hang"], "seconds": 14.0, "line": "stop_once.py", "function": "wait_for_quota"}, None, rank == 1)
