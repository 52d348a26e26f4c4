"""Rank 0 writes metrics every 20 steps, to something slow."""
from plain import *


def write_metrics():
    time.sleep(0.3)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 401):
    train(model, optimizer, *batch())
    if step % 20 == 0 and rank == 0:
        write_metrics()
end({"who": 0, "causes": ["host"], "every": 20, "seconds": 0.3, "line": "log_rank_0.py", "function": "write_metrics"}, None, rank == 0)
