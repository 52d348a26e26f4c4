"""Four loader workers of rank 1 read from a slow disk, and those of rank 0 from a fast one."""
from plain import *


class MaybeSlow(Samples):
    def __getitem__(self, index):
        if slow:
            time.sleep(0.004)
        return super().__getitem__(index)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
slow = rank == 1
clock = Clock()
for epoch in range(2):
    batches = iter(loader(MaybeSlow(8192), num_workers=4, persistent_workers=True))
    next(batches)
    while True:
        with clock:
            one = next(batches, None)
        if one is None:
            break
        train(model, optimizer, *one)
# Four workers deliver four batches together.
end({"who": 1, "causes": ["input"], "line": "input_workers_rank_1.py", "function": "__getitem__"}, clock, rank == 1)
