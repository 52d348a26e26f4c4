"""Rank 0 of four saves the model every 25 steps."""
import io

from plain import *


class SlowFile(io.BytesIO):
    def write(self, data):
        time.sleep(len(data) / 4e6)
        return super().write(data)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.AdamW(model.parameters())
clock = Clock()
for step in range(1, 201):
    train(model, optimizer, *batch())
    if step % 25 == 0 and rank == 0:
        with clock:
            torch.save(model.module.state_dict(), SlowFile())
end({"who": 0, "causes": ["checkpoint"], "every": 25, "line": "checkpoint_rank_0_of_4.py"}, clock, rank == 0)
