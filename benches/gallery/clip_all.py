"""All ranks clip gradients row by row, in Python."""
from plain import *


def clip(model):
    for parameter in model.parameters():
        for row in parameter.grad.view(parameter.shape[0], -1):
            if row.norm() > 1:
                row.mul_(1 / row.norm())


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = Clock()
for step in range(150):
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    with clock:
        clip(model)
    optimizer.step()
end({"who": "all", "causes": ["host"], "line": "clip_all.py", "function": "clip"}, clock, rank == 0)
