"""DDP with a large model and a small batch: the steps are mostly all-reduces."""
from plain import *

rank, _ = begin()
model = parallel(Perceptron(1024, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    train(model, optimizer, *batch(4))
end({"who": "all", "causes": ["communication"]}, None, rank == 0)
