"""A layer of rank 1 looks things up in Python in the forward pass."""
from plain import *


class WithTable(Perceptron):
    def forward(self, x):
        if rank == 1:
            with clock:
                self.look_up()
        return super().forward(x)

    def look_up(self):
        return sum(index % 7 for index in range(600_000))


rank, _ = begin()
model = parallel(WithTable())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = Clock()
for step in range(150):
    train(model, optimizer, *batch())
end({"who": 1, "causes": ["host", "compute"], "line": "forward_rank_1.py", "function": "look_up"}, clock, rank == 1)
