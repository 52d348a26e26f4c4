"""The job fails after 200 steps without a checkpoint, and its launcher starts it again (--max-restarts)."""
import os

from plain import *

attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
# Without a prefix, ranks of PyTorch 2.15 read the addresses of the attempt before, so that most restarts over gloo fail or hang.
store, rank, world = next(dist.rendezvous("env://"))
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.PrefixStore(f"attempt {attempt}", store), rank=rank, world_size=world)
model = parallel(Perceptron(1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    train(model, optimizer, *batch(128))
if attempt < 1:
    os._exit(1)
end({"who": "all", "causes": ["restart"]}, None, rank == 0)
