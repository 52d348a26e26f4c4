"""Ranks that mp.spawn starts; rank 1 is busy for 30 ms in every step."""
from plain import *


def augment():
    busy(0.03)


def main(rank):
    begin()
    model = parallel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(150):
        x, y = batch()
        if rank == 1:
            augment()
        train(model, optimizer, x, y)
    end({"who": 1, "causes": ["host", "compute"], "seconds": 0.03, "line": "plain.py", "function": "busy"}, None, rank == 1)


if __name__ == "__main__":
    spawn(main)
