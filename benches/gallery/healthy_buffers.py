"""Nothing is planted, and batch normalization has buffers that rank 0 sends."""
from plain import *

rank, _ = begin()
model = parallel(nn.Sequential(nn.Linear(128, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Linear(1024, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    train(model, optimizer, *batch(128))
end({"who": None}, None, rank == 0)
