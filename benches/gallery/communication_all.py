"""A large model and a small batch: the steps are mostly all-reduces. The same steps without them tell what these cost."""
from plain import *

rank, _ = begin()
model = parallel(Perceptron(1024, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def steps(count):
    began = time.perf_counter()
    for _ in range(count):
        train(model, optimizer, *batch(4))
    return (time.perf_counter() - began) / count


with model.no_sync():
    alone = steps(50)
together = steps(200)
end({"who": "all", "causes": ["communication"], "seconds": together - alone}, None, rank == 0)
