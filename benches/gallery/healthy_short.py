"""Nothing is planted, and the job is over after 60 steps."""
from plain import *

rank, _ = begin()
model = parallel(Perceptron(1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    train(model, optimizer, *batch(128))
end({"who": None}, None, rank == 0)
