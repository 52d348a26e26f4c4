"""FSDP2, and a distributed checkpoint of all ranks every 40 steps."""
import tempfile

import torch.distributed.checkpoint as dcp

from plain import *


class SlowWriter(dcp.FileSystemWriter):
    def write_data(self, *arguments):
        time.sleep(0.4)
        return super().write_data(*arguments)


rank, _ = begin()
model = sharded(Perceptron())
optimizer = torch.optim.AdamW(model.parameters())
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
clock = Clock()
for step in range(1, 241):
    train(model, optimizer, *batch())
    if step % 40 == 0:
        with clock:
            dcp.save({"model": model.state_dict()}, storage_writer=SlowWriter(f"{folder[0]}/{step}"))
end({"who": "all", "causes": ["checkpoint"], "every": 40, "line": "fsdp_checkpoint_all.py"}, clock, rank == 0)
