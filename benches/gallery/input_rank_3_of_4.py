"""Rank 3 of four reads its samples from a slower disk."""
from plain import *


class MaybeSlow(Samples):
    def __getitem__(self, index):
        if rank == 3:
            time.sleep(0.001)
        return super().__getitem__(index)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = Clock()
for epoch in range(4):
    batches = iter(loader(MaybeSlow()))
    while True:
        with clock:
            one = next(batches, None)
        if one is None:
            break
        train(model, optimizer, *one)
end({"who": 3, "causes": ["input"], "line": "input_rank_3_of_4.py", "function": "__getitem__"}, clock, rank == 3)
