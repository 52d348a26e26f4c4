"""All ranks hold many objects, and collect garbage every 20 steps."""
import gc

from plain import *

rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
held = [[index] for index in range(1_500_000)]
clock = Clock()
for step in range(1, 301):
    train(model, optimizer, *batch())
    if step % 20 == 0:
        with clock:
            gc.collect()
end({"who": "all", "causes": ["garbage_collection"], "every": 20, "line": "garbage_all.py"}, clock, rank == 0)
