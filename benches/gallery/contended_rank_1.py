"""Something else runs on the core that rank 1 has to itself."""
import os
import subprocess

from plain import *

rank, _ = begin()
os.sched_setaffinity(0, {rank})
if rank == 1:
    subprocess.run(["sh", "-c", "timeout 20 python3 -c 'while True: pass' > /dev/null 2>&1 &"], check=True)
model = parallel(Perceptron(1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    train(model, optimizer, *batch(128))
end({"who": 1, "causes": ["host", "processor"]}, None, rank == 1)
