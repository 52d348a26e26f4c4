"""Every sample takes half a millisecond to read, on all ranks, in the process that trains."""
from plain import *

clock = Clock()


class SlowDisk(Samples):
    def __getitem__(self, index):
        time.sleep(0.0006)
        return super().__getitem__(index)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    batches = iter(loader(SlowDisk()))
    while True:
        with clock:
            one = next(batches, None)
        if one is None:
            break
        train(model, optimizer, *one)
end({"who": "all", "causes": ["input"], "line": "input_slow_read.py", "function": "__getitem__"}, clock, rank == 0)
