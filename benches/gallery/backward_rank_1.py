"""Rank 1 is busy for 80 ms within its backward pass. All ranks have equal step times, as they wait for it."""
from plain import *


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        if rank == 1:
            busy(0.08)
        return gradient


class WithSlow(Perceptron):
    def forward(self, x):
        return Slow.apply(super().forward(x))


rank, _ = begin()
model = parallel(WithSlow())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(150):
    train(model, optimizer, *batch())
end({"who": 1, "causes": ["host", "compute"], "seconds": 0.08, "line": "plain.py", "function": "busy"}, None, rank == 1)
