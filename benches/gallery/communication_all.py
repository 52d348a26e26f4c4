"""A loop without DDP that averages each gradient after the backward pass. The large model and the small batch make it slow."""
from plain import *


def average(model):
    first, *others = model.parameters()
    # This one also waits for the slower rank.
    dist.all_reduce(first.grad)
    with clock:
        for parameter in others:
            dist.all_reduce(parameter.grad)
    for parameter in model.parameters():
        parameter.grad /= world


_, world = begin()
rank = dist.get_rank()
model = Perceptron(1024, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = Clock()
for step in range(200):
    x, y = batch(4)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    average(model)
    optimizer.step()
end({"who": "all", "causes": ["communication"]}, clock, rank == 0)
