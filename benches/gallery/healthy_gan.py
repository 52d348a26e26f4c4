"""A GAN, with nothing planted."""
from plain import *

rank, _ = begin()
gan = Gan()
for step in range(200):
    gan.step(batch(16)[0])
end({"who": None}, None, rank == 0)
