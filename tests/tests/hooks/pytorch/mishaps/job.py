"""The job of a run: a small DDP training that meets what its plan says."""

import datetime
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import plant
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

PATIENCE = datetime.timedelta(seconds=8)


def in_child():
    """What a forked child of a rank does."""
    weight = torch.ones(2, requires_grad=True)
    torch.optim.SGD([weight], lr=1.0).step()
    for _ in DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2):
        pass


class Job:
    """One rank of the job. `watch` does nothing in the arm without Paceline."""

    def __init__(self, plan, rank, meeting, watch, server_pid):
        self.plan, self.rank, self.meeting, self.watch, self.server_pid = plan, rank, meeting, watch, server_pid
        self.world, self.extras = plan["world"], plan["extras"]

    def say(self, *what):
        print(*what, flush=True)

    def watch_at(self, place):
        at = self.plan["watch_at"]
        if at == place or at == "twice" and place in ("before_group", "after_model"):
            self.watch()
        if at == "in_thread" and place == "after_group":
            thread = threading.Thread(target=self.watch)
            thread.start()
            thread.join()

    def run(self):
        torch.set_num_threads(1)
        torch.manual_seed(self.rank)
        self.watch_at("before_group")
        dist.init_process_group("gloo", init_method="file://" + self.meeting, rank=self.rank, world_size=self.world, timeout=PATIENCE)
        self.watch_at("after_group")
        self.other = dist.new_group(list(range(self.world))) if "new_group" in self.extras else dist.group.WORLD
        if "destroyed_group" in self.extras:
            short_lived = dist.new_group(list(range(self.world)))
            dist.barrier(group=short_lived)
            dist.destroy_process_group(short_lived)
        self.train()
        self.watch_at("after_training")
        self.finish()

    def train(self):
        layers = torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
        model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.001)
        self.watch_at("after_model")
        self.model = model
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        count = 8 * self.plan["steps"]
        data = TensorDataset(torch.randn(count, 16), torch.randint(4, (count,)))
        batches = DataLoader(data, batch_size=8, num_workers=self.plan["workers"], timeout=20 if self.plan["workers"] else 0)
        for number, (batch, target) in enumerate(batches):
            if number == 1:
                self.watch_at("in_training")
            self.meet(number)
            loss = self.step(model, optimizer, batch, target, number)
            # What a rank sees of the step in which another one ends depends on time.
            if not self.ends_early() or number < self.plan["end_step"]:
                self.say("step", number, loss.item().hex())
        self.say("sum", sum(value.double().sum().item() for value in model.state_dict().values()).hex())

    def step(self, model, optimizer, batch, target, number):
        optimizer.zero_grad()
        if "no_sync" in self.extras:
            with model.no_sync():
                torch.nn.functional.cross_entropy(model(batch), target).backward()
        loss = torch.nn.functional.cross_entropy(model(batch), target)
        loss.backward()
        optimizer.step()
        if "evaluation" in self.extras:
            with torch.no_grad():
                self.say("evaluation", model.module.eval()(batch).sum().item().hex())
            model.train()
        self.communicate(number)
        return loss

    def communicate(self, number):
        ones = torch.full((64,), float(number + self.rank))
        if "async" in self.extras:
            work = dist.all_reduce(ones, group=self.other, async_op=True)
            work.wait()
        if "other_collectives" in self.extras:
            dist.broadcast(ones, 0, group=self.other)
            dist.all_gather([torch.empty_like(ones) for _ in range(self.world)], ones)
            dist.all_gather_object([None] * self.world, {"rank": self.rank})
            dist.barrier(group=self.other)
        if "thread" in self.extras:
            thread = threading.Thread(target=lambda: torch.nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward())
            thread.start()
            thread.join()
        if "subprocess" in self.extras and number == 1:
            ended = subprocess.run([sys.executable, "-c", "print(6 * 7); raise SystemExit(3)"], stdout=subprocess.PIPE)
            self.say("subprocess", ended.returncode, ended.stdout)

    def meet(self, number):
        """Meets what the plan has for this step."""
        if self.server_pid and number == self.plan["kill_server_at"] and self.rank == 0:
            os.kill(self.server_pid, signal.SIGKILL)
        if number == self.plan["fork_at"]:
            self.fork()
        if self.ends_early() and number == self.plan["end_step"] and self.rank == self.plan["end_rank"]:
            self.end_early()

    def fork(self):
        if self.plan["fork"] == "multiprocessing":
            child = multiprocessing.get_context("fork").Process(target=in_child)
            child.start()
            child.join()
            return self.say("fork", child.exitcode)
        child = os.fork()
        if child == 0:
            if self.plan["fork"] == "exec":
                os.execv("/bin/sh", ["sh", "-c", "exit 6"])
            in_child()
            os._exit(4)
        self.say("fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def ends_early(self):
        return self.plan["end"] not in ("clean", "destroy", "leave")

    def train_until_interrupted(self):
        """Trains on its own until an exception of a signal handler ends it, mostly in the middle of PyTorch's work."""

        def handle(*_):
            raise TimeoutError

        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.02 + self.plan["symbol"] / 50)
        batch = torch.ones(1 << 15, 16)
        with self.model.no_sync():
            for _ in range(200):
                self.model(batch).square().sum().backward()
        self.say("not interrupted")

    def end_early(self):
        end = self.plan["end"]
        if end == "handler":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
        if self.plan["end_in_flight"]:
            self.in_flight = dist.all_reduce(torch.ones(1 << 16), async_op=True)
        if end == "sys.exit":
            sys.exit(3)
        if end == "os._exit":
            os._exit(7)
        if end == "raise":
            raise ValueError("of the job")
        if end == "catch":
            raise StopAsyncIteration
        if end == "alarm":
            return self.train_until_interrupted()
        number = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT}.get(end, signal.SIGTERM)
        os.kill(os.getpid(), number)

    def finish(self):
        if self.plan["end"] == "leave":
            return
        if self.plan["end"] == "destroy":
            dist.destroy_process_group()
            return
        dist.barrier()
        sys.stdout.flush()
        os._exit(0)


def run(plan, rank, meeting, watch=lambda: None, server_pid=None):
    """Runs a rank in this process. Nothing here catches what ends a job, except if the plan says so."""
    plant.change_torch(plan["torch"])
    job = Job(plan, rank, meeting, watch, server_pid)
    if plan["end"] != "catch":
        return job.run()
    try:
        job.run()
    except BaseException as error:  # the kind of the error is the job's result
        print("caught", type(error).__name__, flush=True)
        os._exit(5)


if __name__ == "__main__":
    # A rank in its own interpreter: job.py PLAN MEETING, with the rank in the environment.
    with open(sys.argv[1]) as file:
        run(json.load(file), int(os.environ["RANK"]), sys.argv[2])
