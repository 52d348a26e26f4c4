"""A DDP script that states what a step computes, and its accuracy."""

import sys

import paceline
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH = 512, 32


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))))
    state = torch.get_rng_state()
    dist.barrier()
    # Mistakes, which the job survives.
    assert not paceline.workload(precision="float32")
    assert not paceline.workload(samples_per_step="many")
    assert not paceline.workload(precision=["bf16"])
    assert not paceline.workload(flops_per_sample=torch.ones(2))
    reported = paceline.workload(
        samples_per_step=BATCH,
        unit="rows",
        flops_per_sample=6 * 4 * WIDTH * WIDTH,
        precision="fp32",
        peak_flops="measure",
    )
    assert torch.equal(state, torch.get_rng_state())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.ones(BATCH, WIDTH)
    for _ in range(int(sys.argv[1])):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    assert not paceline.label("my accuracy", 0.5)
    assert not paceline.label("accuracy", "0,5")
    assert paceline.label("accuracy", 0.25) and paceline.label("accuracy", 0.5)
    if dist.get_rank() == 0:
        print("loss %s" % reported, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
