"""A hook of the optimizer writes norms, on rank 1 alone."""
from plain import *


def write_norms(*_):
    busy(0.02)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if rank == 1:
    optimizer.register_step_post_hook(write_norms)
for step in range(200):
    train(model, optimizer, *batch())
truth = {"who": 1, "causes": ["host", "compute", "optimizer"], "seconds": 0.02, "line": "plain.py", "function": "busy"}
end(truth, None, rank == 1)
