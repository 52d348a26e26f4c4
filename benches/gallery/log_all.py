"""All ranks write metrics every 25 steps, to something slow."""
from plain import *


def write_metrics():
    time.sleep(0.25)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 401):
    train(model, optimizer, *batch())
    if step % 25 == 0:
        write_metrics()
end({"who": "all", "causes": ["host"], "every": 25, "seconds": 0.25, "line": "log_all.py", "function": "write_metrics"}, None, rank == 0)
