"""Four micro-batches per step with no_sync, each of samples that are slow to read, on all ranks."""
from plain import *


class SlowDisk(Samples):
    def __getitem__(self, index):
        time.sleep(0.0003)
        return super().__getitem__(index)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = Clock()


def micro_batch(batches):
    with clock:
        x, y = next(batches)
    F.cross_entropy(model(x), y).backward()


batches = iter(loader(SlowDisk(4 * 32 * 2 * 120)))
for step in range(120):
    optimizer.zero_grad()
    with model.no_sync():
        for _ in range(3):
            micro_batch(batches)
    micro_batch(batches)
    optimizer.step()
truth = {"who": "all", "causes": ["input"], "times": 4, "line": "accumulation_input_all.py", "function": "__getitem__"}
end(truth, clock, rank == 0)
