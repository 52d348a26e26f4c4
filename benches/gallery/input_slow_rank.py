"""Rank 1 reads its samples from a slower disk."""
from plain import *

clock = Clock()


class MaybeSlow(Samples):
    def __getitem__(self, index):
        if rank == 1:
            time.sleep(0.0008)
        return super().__getitem__(index)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    batches = iter(loader(MaybeSlow()))
    while True:
        with clock:
            one = next(batches, None)
        if one is None:
            break
        train(model, optimizer, *one)
end({"who": 1, "causes": ["input"], "line": "input_slow_rank.py", "function": "__getitem__"}, clock, rank == 1)
