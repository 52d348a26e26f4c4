"""A DDP job that torchrun restarts: rank 1 begins 3 s late and fails after 200 steps. In a later attempt, all ranks train 150 steps.

Usage: restarts.py [STEP]. With a step, the later attempt states that it resumes it.

Each attempt has keys of its own in torchrun's store. With the default ones, gloo may read an address of the attempt before
and wait for its timeout: in 7 of 12 restarts with torch 2.15 and 1 of 8 with 2.6, without observation.
"""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    rank, world_size, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    store = dist.TCPStore(os.environ["MASTER_ADDR"], port, is_master=False)
    store = dist.PrefixStore("attempt-%d" % attempt, store)
    timeout = datetime.timedelta(seconds=20)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)
    if attempt > 0 and len(sys.argv) > 1:
        import paceline

        assert paceline.resume(int(sys.argv[1]))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if attempt == 0 and rank == 1:
        # The other rank waits in its first collective, before any step is known.
        time.sleep(3)
    layers = [torch.nn.Linear(256, 256) for _ in range(6)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.25)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(200 if attempt == 0 else 150):
        time.sleep(0.02)
        optimizer.zero_grad()
        loss = model(torch.randn(64, 256)).square().mean()
        loss.backward()
        optimizer.step()
    if attempt == 0 and dist.get_rank() == 1:
        # torchrun kills the other rank as soon as this one has failed. Its newest records are to be sent by then: agents send twice per
        # second.
        time.sleep(2)
        sys.exit("planted")
    print("attempt %d ends" % attempt, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
