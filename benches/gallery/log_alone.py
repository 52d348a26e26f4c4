"""A job of one rank, which sends its metrics every 20 steps and waits 0.3 s for that."""
from plain import *


def write_metrics():
    time.sleep(0.3)


begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 401):
    train(model, optimizer, *batch())
    if step % 20 == 0:
        write_metrics()
end({"who": "all", "causes": ["host"], "every": 20, "seconds": 0.3, "line": "log_alone.py", "function": "write_metrics"})
