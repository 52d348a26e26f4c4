"""Rank 1 keeps every loss and sums over all of them after each step, which takes longer and longer."""
from plain import *


def mean_of(losses):
    busy(40e-6 * len(losses))
    return sum(losses) / len(losses)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses, clock = [], Clock()
for step in range(600):
    train(model, optimizer, *batch())
    if rank != 1:
        continue
    losses.append(float(step))
    with clock:
        mean_of(losses)
first, last = (clock.times or [0] * 600)[2:27], (clock.times or [0] * 600)[-25:]
rate = (sum(last) - sum(first)) / 25 / 573 * 1000
truth = {"who": 1, "causes": ["host", "compute"], "grows_s_per_1000": rate, "line": "plain.py", "function": "busy"}
end(truth, clock, rank == 1)
