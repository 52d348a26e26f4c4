"""Sequences of different lengths: now one rank has the longer ones, now the other."""
from plain import *

rank, _ = begin()
model = parallel(Perceptron(1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(rank)
for step in range(200):
    train(model, optimizer, *batch(int(torch.randint(64, 192, ()))))
end({"who": None}, None, rank == 0)
