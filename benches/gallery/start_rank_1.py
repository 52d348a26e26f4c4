"""Rank 1 prepares its data for over a minute before it builds its model, and the other rank waits in DDP's constructor."""
from plain import *


def prepare(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        time.sleep(0.1)


rank, _ = begin()
before = time.perf_counter()
if rank == 1:
    prepare(70)
model = parallel(Perceptron(1024))
took = time.perf_counter() - before
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(300):
    train(model, optimizer, *batch(128))
end({"who": 1, "causes": ["start"], "seconds": took, "each": True}, None, rank == 0)
