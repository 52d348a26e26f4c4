"""Nothing is planted, and the model is compiled."""
from plain import *

rank, _ = begin()
model = torch.compile(parallel(Perceptron(1024)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    train(model, optimizer, *batch(128))
end({"who": None}, None, rank == 0)
