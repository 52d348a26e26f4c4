"""Rank 0 saves the model to a slow file system every 40 steps, and the others wait in the next all-reduce."""
import io

from plain import *

rank, _ = begin()
model = parallel()
optimizer = torch.optim.AdamW(model.parameters())
clock = Clock()


class SlowFile(io.BytesIO):
    def write(self, data):
        time.sleep(len(data) / 20e6)
        return super().write(data)


for step in range(1, 321):
    train(model, optimizer, *batch())
    if step % 40 == 0 and rank == 0:
        with clock:
            torch.save(model.module.state_dict(), SlowFile())
end({"who": 0, "causes": ["checkpoint"], "every": 40, "line": "checkpoint_rank_0.py"}, clock, rank == 0)
