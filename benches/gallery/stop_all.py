"""All ranks wait 13 s for a file system that comes back."""
from plain import *


def wait_for_files():
    time.sleep(13)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(400):
    train(model, optimizer, *batch())
    if step == 200:
        wait_for_files()
end({"who": "all", "causes": ["hang"], "seconds": 13.0, "line": "stop_all.py", "function": "wait_for_files"}, None, rank == 0)
