"""Short epochs, and loader workers that are started again in each of them."""
from plain import *

rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = loader(Samples(1280), num_workers=2)
clock = Clock()
for epoch in range(16):
    with clock:
        batches = iter(data)
        first = next(batches)
    train(model, optimizer, *first)
    for one in batches:
        train(model, optimizer, *one)
end({"who": "all", "causes": ["input"], "every": 20}, None, rank == 0)
