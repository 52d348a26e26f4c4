"""A DDP job that is observed for some steps and not for others, and prints what they took: usage: toggled.py ROUNDS

All ranks turn at the same step. What turns is what `attach` adds to a collective, the hooks of the process group; the
threads of the agent are there all the time.
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

# As in what is observed: the number of the hooks, and the class that has them.
HOOK, HOOKS = 0x9ACE11E, "Hooks"
WARM_UP, STEPS = 20, 8
# None has a better place than the others.
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
    # Not by way of gloo's own end, which is none now and then.
    os._exit(0)


main()
