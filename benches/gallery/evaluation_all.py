"""All ranks evaluate every 60 steps."""
from plain import *


def evaluate(model):
    model.eval()
    with torch.no_grad():
        until = time.perf_counter() + 0.5
        while time.perf_counter() < until:
            model.module(torch.randn(64, 128))
    model.train()


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = Clock()
for step in range(1, 421):
    train(model, optimizer, *batch())
    if step % 60 == 0:
        with clock:
            evaluate(model)
end({"who": "all", "causes": ["evaluation"], "every": 60, "line": "evaluation_all.py"}, clock, rank == 0)
