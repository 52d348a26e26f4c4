"""Nothing is planted, and mp.spawn starts the ranks."""
from plain import *


def main(rank):
    begin()
    model = parallel(Perceptron(1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(200):
        train(model, optimizer, *batch(128))
    end({"who": None}, None, rank == 0)


if __name__ == "__main__":
    spawn(main)
