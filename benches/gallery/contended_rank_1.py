"""Something else runs on the core of rank 1."""
import os
import subprocess
import sys

from plain import *

rank, _ = begin()
os.sched_setaffinity(0, {rank})
other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if rank == 1 else None
model = parallel(Perceptron(1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    train(model, optimizer, *batch(128))
if other:
    other.kill()
end({"who": 1, "causes": ["host", "processor"]}, None, rank == 1)
