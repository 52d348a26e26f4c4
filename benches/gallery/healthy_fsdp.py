"""Nothing is planted, and FSDP2 shards the model."""
from plain import *

rank, _ = begin()
model = sharded(Perceptron(1024))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(120):
    train(model, optimizer, *batch(128))
end({"who": None}, None, rank == 0)
