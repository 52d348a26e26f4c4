"""Two loader workers decode too slowly for the step."""
from plain import *


class Decoded(Samples):
    def __getitem__(self, index):
        busy_until = time.perf_counter() + 0.001
        while time.perf_counter() < busy_until:
            time.sleep(0.0002)
        return super().__getitem__(index)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = Clock()
for epoch in range(2):
    batches = iter(loader(Decoded(8192), num_workers=2, persistent_workers=True))
    next(batches)
    while True:
        with clock:
            one = next(batches, None)
        if one is None:
            break
        train(model, optimizer, *one)
# The ranks take turns at waiting, and in each step the job waits for the one that waits longest.
clock.of_slowest_rank()
end({"who": "all", "causes": ["input"], "line": "input_slow_workers.py", "function": "__getitem__"}, clock, rank == 0)
