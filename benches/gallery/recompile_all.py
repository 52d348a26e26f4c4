"""A compiled model that sees a new shape every 40 steps, and compiles again."""
from plain import *

rank, _ = begin()
model = torch.compile(parallel(Perceptron(256, 2)), dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = Clock()
for step in range(1, 281):
    x, y = batch(16 + step // 40)
    if step % 40 == 0:
        with clock:
            train(model, optimizer, x, y)
    else:
        train(model, optimizer, x, y)
end({"who": "all", "causes": ["compilation"], "every": 40}, clock, rank == 0)
