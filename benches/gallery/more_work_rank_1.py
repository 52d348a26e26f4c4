"""Rank 1 has batches of 512 samples and rank 0 of 128, as after a split that is not even."""
from plain import *

rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    train(model, optimizer, *batch(512 if rank == 1 else 128))
end({"who": 1, "causes": ["more_work", "compute", "host", "processor"]}, None, rank == 1)
