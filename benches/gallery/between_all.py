"""All ranks do something of their own between steps, for 40 ms."""
from plain import *


def curriculum():
    time.sleep(0.04)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    curriculum()
    train(model, optimizer, *batch())
end({"who": "all", "causes": ["host"], "seconds": 0.04, "line": "between_all.py", "function": "curriculum"}, None, rank == 0)
