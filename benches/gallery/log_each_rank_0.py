"""Rank 0 writes its metrics in every step, to a slow file system."""
from plain import *


def log_metrics():
    time.sleep(0.015)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(250):
    train(model, optimizer, *batch())
    if rank == 0:
        log_metrics()
end({"who": 0, "causes": ["host"], "seconds": 0.015, "line": "log_each_rank_0.py", "function": "log_metrics"}, None, rank == 0)
