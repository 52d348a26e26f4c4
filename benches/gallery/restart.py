"""The job fails after 200 steps without a checkpoint, and its launcher starts it again (--max-restarts)."""
import os

from plain import *

attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
rank, _ = begin()
model = parallel(Perceptron(1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    train(model, optimizer, *batch(128))
if attempt < 1:
    os._exit(1)
end({"who": "all", "causes": ["restart"]}, None, rank == 0)
