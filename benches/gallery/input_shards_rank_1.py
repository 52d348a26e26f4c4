"""Rank 1 alone opens a new shard of the data for every 30th batch."""
from plain import *


class Shards(torch.utils.data.IterableDataset):
    def __iter__(self):
        for index in range(360 * 32):
            if rank == 1 and index % (30 * 32) == 0:
                self.open_shard()
            yield torch.full((128,), index % 11 / 11), index % 10

    def open_shard(self):
        time.sleep(0.3)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for one in DataLoader(Shards(), batch_size=32):
    train(model, optimizer, *one)
truth = {"who": 1, "causes": ["input"], "every": 30, "seconds": 0.3, "line": "input_shards_rank_1.py", "function": "open_shard"}
end(truth, None, rank == 1)
