"""A job of one rank, whose samples take half a millisecond each to read."""
from plain import *

clock = Clock()


class SlowDisk(Samples):
    def __getitem__(self, index):
        time.sleep(0.0006)
        return super().__getitem__(index)


begin()
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
end({"who": "all", "causes": ["input"], "line": "input_alone.py", "function": "__getitem__"}, clock)
