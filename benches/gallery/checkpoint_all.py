"""Each rank writes its own shard every 30 steps."""
import io

from plain import *


class SlowFile(io.BytesIO):
    def write(self, data):
        time.sleep(len(data) / 20e6)
        return super().write(data)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.AdamW(model.parameters())
clock = Clock()
for step in range(1, 301):
    train(model, optimizer, *batch())
    if step % 30 == 0:
        with clock:
            torch.save(model.module.state_dict(), SlowFile())
end({"who": "all", "causes": ["checkpoint"], "every": 30, "line": "checkpoint_all.py"}, clock, rank == 0)
