"""A model with batch normalization, whose buffers rank 0 sends before each forward pass, and a rank that is late by 40 ms."""
from plain import *


def augment():
    time.sleep(0.04)


rank, _ = begin()
model = parallel(nn.Sequential(nn.Linear(128, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(150):
    x, y = batch()
    if rank == 1:
        augment()
    train(model, optimizer, x, y)
truth = {"who": 1, "causes": ["host"], "seconds": 0.04, "line": "buffers_rank_1.py", "function": "augment"}
end(truth, None, rank == 1)
