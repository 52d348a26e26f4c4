"""FSDP2, and samples that are slow to read on all ranks."""
from plain import *


class SlowDisk(Samples):
    def __getitem__(self, index):
        time.sleep(0.0012)
        return super().__getitem__(index)


rank, _ = begin()
model = sharded()
optimizer = torch.optim.AdamW(model.parameters())
clock = Clock()
for epoch in range(3):
    batches = iter(loader(SlowDisk()))
    while True:
        with clock:
            one = next(batches, None)
        if one is None:
            break
        train(model, optimizer, *one)
end({"who": "all", "causes": ["input"], "line": "fsdp_input_all.py", "function": "__getitem__"}, clock, rank == 0)
