"""A ResNet-18 with narrow layers, 300 steps, and 200 ms of busy waiting in the backward pass of rank 1, as in a public case."""
from plain import *


class Block(nn.Module):
    def __init__(self, of, to, stride):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(of, to, 3, stride, 1, bias=False), nn.BatchNorm2d(to), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(to, to, 3, 1, 1, bias=False), nn.BatchNorm2d(to))
        self.short = nn.Conv2d(of, to, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.short(x))


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        if rank == 1:
            busy(0.2)
        return gradient


class ResNet(nn.Module):
    def __init__(self, widths=(16, 16, 32, 64, 128)):
        super().__init__()
        self.begin = nn.Sequential(nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU())
        pairs = [(Block(a, b, 1 + (a != b)), Block(b, b, 1)) for a, b in zip(widths, widths[1:])]
        self.blocks = nn.Sequential(*(block for pair in pairs for block in pair))
        self.end = nn.Linear(widths[-1], 10)

    def forward(self, x):
        return self.end(Slow.apply(self.blocks(self.begin(x))).mean((2, 3)))


rank, _ = begin()
model = parallel(ResNet())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(300):
    train(model, optimizer, torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,)))
end({"who": 1, "causes": ["host", "compute"], "seconds": 0.2, "line": "plain.py", "function": "busy"}, None, rank == 1)
