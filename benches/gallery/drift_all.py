"""All ranks keep every loss and sum over all of them after each step, which takes longer and longer."""
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
    losses.append(float(step))
    with clock:
        mean_of(losses)
first, last = clock.times[2:27], clock.times[-25:]
rate = (sum(last) - sum(first)) / 25 / 573 * 1000
truth = {"who": "all", "causes": ["host"], "grows_s_per_1000": rate, "line": "plain.py", "function": "busy"}
end(truth, clock, rank == 0)
