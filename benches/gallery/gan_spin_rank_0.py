"""Rank 0 of a GAN is busy for 30 ms in each step, between two passes of the discriminator."""
from plain import *

clock = Clock()


def statistics():
    if rank == 0:
        with clock:
            busy(0.03)


rank, _ = begin()
gan = Gan()
for step in range(150):
    gan.step(batch(16)[0], statistics)
end({"who": 0, "causes": ["host", "compute"], "line": "plain.py", "function": "busy"}, clock, rank == 0)
