"""Nothing is planted, and four micro-batches make a step."""
from plain import *

rank, _ = begin()
model = parallel(Perceptron(1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(120):
    with model.no_sync():
        for _ in range(3):
            x, y = batch(64)
            F.cross_entropy(model(x), y).backward()
    train(model, optimizer, *batch(64))
end({"who": None}, None, rank == 0)
