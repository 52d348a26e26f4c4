"""Nothing is planted, and two workers load the data."""
from plain import *

rank, _ = begin()
model = parallel(Perceptron(1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for one in loader(Samples(8192), batch=64, num_workers=2, persistent_workers=True):
        train(model, optimizer, *one)
end({"who": None}, None, rank == 0)
