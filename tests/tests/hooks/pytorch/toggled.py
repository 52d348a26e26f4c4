"""A DDP job that is observed in some steps only, and prints the time of both kinds. Usage: toggled.py ROUNDS

All ranks switch at the same step. Only the hooks that `attach` adds to the process group are switched; the threads of
the agent run all the time.
"""

import gc
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from plain_ddp import Model
from torch.nn.parallel import DistributedDataParallel

# The number of the hooks and the name of their class, as in the observed job.
HOOK, HOOKS = 0x9ACE11E, "Hooks"
WARM_UP, STEPS = 20, 8
# Orders of the arms, so that no arm is always in the same position.
ORDERS = [("on", "off", "off_again"), ("off_again", "off", "on"), ("off", "on", "off_again"), ("off_again", "on", "off")]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    [hooks] = [found for found in gc.get_objects() if type(found).__name__ == HOOKS]
    world = dist.group.WORLD
    world.unregister_pre_hook(HOOK)
    world.unregister_post_hook(HOOK)
    model = DistributedDataParallel(Model(), bucket_cap_mb=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, target = torch.randn(64, 1024), torch.randn(64, 1024)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(batch), target).backward()
            optimizer.step()

    def measured(is_observed):
        if is_observed:
            world.register_pre_hook(HOOK, hooks.before)
            world.register_post_hook(HOOK, hooks.after)
        dist.barrier()
        begin, cpu = time.perf_counter_ns(), time.process_time_ns()
        train(STEPS)
        took = [(time.perf_counter_ns() - begin) / STEPS, (time.process_time_ns() - cpu) / STEPS]
        if is_observed:
            world.unregister_pre_hook(HOOK)
            world.unregister_post_hook(HOOK)
        return took

    train(WARM_UP)
    for number in range(int(sys.argv[1])):
        found = {arm: measured(arm == "on") for arm in ORDERS[number % len(ORDERS)]}
        if dist.get_rank() == 0:
            print(json.dumps({"what": "round", **found}), flush=True)
    dist.barrier()
    sys.stdout.flush()
    # Avoids gloo's shutdown, which sometimes fails.
    os._exit(0)


main()
