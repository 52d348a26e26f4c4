"""Many small parameters, and an optimizer that updates them one by one."""
from plain import *

rank, _ = begin()
model = parallel(nn.Sequential(nn.Linear(128, 10), *(nn.Linear(10, 10) for _ in range(150))))
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
clock = Clock()
for step in range(200):
    x, y = batch(8)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    with clock:
        optimizer.step()
end({"who": "all", "causes": ["optimizer"], "line": "optimizer_all.py"}, clock, rank == 0)
