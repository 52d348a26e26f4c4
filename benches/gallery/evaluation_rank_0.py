"""Only rank 0 evaluates, every 50 steps."""
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
for step in range(1, 401):
    train(model, optimizer, *batch())
    if step % 50 == 0 and rank == 0:
        with clock:
            evaluate(model)
end({"who": 0, "causes": ["evaluation"], "every": 50, "line": "evaluation_rank_0.py"}, clock, rank == 0)
