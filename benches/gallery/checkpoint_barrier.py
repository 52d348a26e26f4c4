"""Rank 0 saves the model every 30 steps, and the others wait at a barrier, as many guides advise."""
import io

from plain import *


class SlowFile(io.BytesIO):
    def write(self, data):
        time.sleep(len(data) / 10e6)
        return super().write(data)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.AdamW(model.parameters())
clock = Clock()
for step in range(1, 301):
    train(model, optimizer, *batch())
    if step % 30 == 0:
        if rank == 0:
            with clock:
                torch.save(model.module.state_dict(), SlowFile())
        dist.barrier()
end({"who": 0, "causes": ["checkpoint"], "every": 30, "line": "checkpoint_barrier.py"}, clock, rank == 0)
