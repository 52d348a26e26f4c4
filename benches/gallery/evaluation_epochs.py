"""Rank 0 evaluates at the end of each epoch of 32 steps, and the others wait at a barrier."""
from plain import *


def validate(model):
    model.eval()
    with torch.no_grad():
        for x, _ in DataLoader(Samples(6000), batch_size=16):
            model.module(x)
    model.train()


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = Clock()
for epoch in range(8):
    for one in loader(Samples(2048)):
        train(model, optimizer, *one)
    if rank == 0:
        with clock:
            validate(model)
    dist.barrier()
end({"who": 0, "causes": ["evaluation"], "every": 32, "line": "evaluation_epochs.py"}, clock, rank == 0)
