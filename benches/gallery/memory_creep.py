"""All ranks keep a tensor of 1 MiB from each step, for a minute; nothing is slower for it."""
from plain import *

rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept, began = [], time.perf_counter()
for step in range(1200):
    train(model, optimizer, *batch())
    kept.append(torch.ones(256 * 1024))
    time.sleep(max(0.0, began + 0.05 * (step + 1) - time.perf_counter()))
rate = len(kept) * 2**20 / (time.perf_counter() - began)
end({"who": None, "memory_bytes_per_second": rate}, None, rank == 0)
