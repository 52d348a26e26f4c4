"""Ranks that mp.spawn starts; rank 0 saves the model every 40 steps."""
import io

from plain import *


class SlowFile(io.BytesIO):
    def write(self, data):
        time.sleep(len(data) / 10e6)
        return super().write(data)


def main(rank):
    begin()
    model = parallel()
    optimizer = torch.optim.AdamW(model.parameters())
    clock = Clock()
    for step in range(1, 281):
        train(model, optimizer, *batch())
        if step % 40 == 0 and rank == 0:
            with clock:
                torch.save(model.module.state_dict(), SlowFile())
    end({"who": 0, "causes": ["checkpoint"], "every": 40, "line": "spawn_checkpoint_rank_0.py"}, clock, rank == 0)


if __name__ == "__main__":
    spawn(main)
