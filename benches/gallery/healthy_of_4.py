"""Nothing is planted, and four ranks share the cores."""
from plain import *

rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    train(model, optimizer, *batch(128))
end({"who": None}, None, rank == 0)
