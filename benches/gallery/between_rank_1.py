"""Rank 1 alone asks a server something between steps, for 25 ms."""
from plain import *


def ask_server():
    time.sleep(0.025)


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    if rank == 1:
        ask_server()
    train(model, optimizer, *batch())
end({"who": 1, "causes": ["host"], "seconds": 0.025, "line": "between_rank_1.py", "function": "ask_server"}, None, rank == 1)
