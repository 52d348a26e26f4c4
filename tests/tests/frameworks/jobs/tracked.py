"""A DDP job that logs to Weights & Biases, MLflow and TensorBoard itself, and asks Paceline to log there as well.

It ends once Paceline has logged a verdict some times, and prints what the trackers' own readers find.
Usage: tracked.py MOST_STEPS FOLDER
"""

import json
import os
import subprocess
import sys
import time

import mlflow
import paceline
import torch
import torch.distributed as dist
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter

STEPS, FOLDER = int(sys.argv[1]), sys.argv[2]
ENOUGH, SECONDS = 4, 0.5
EXPERIMENT = "file://" + FOLDER + "/mlflow"
heard = []


def listen(figures, step):
    heard.append((step, figures))


def names_rank_1():
    return sum("Rank 1" in figures.get("paceline/verdict", "") for _, figures in heard)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    is_first = dist.get_rank() == 0
    run = writer = None
    if is_first:
        run = wandb.init(project="tracked", dir=FOLDER)
        mlflow.set_tracking_uri(EXPERIMENT)
        mlflow.start_run()
        writer = SummaryWriter(FOLDER + "/tensorboard")
    logs = [paceline.log(to, every=SECONDS) for to in (run, "mlflow", writer or "wandb", listen)]
    assert logs == [is_first] * 4, logs
    layers = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for step in range(STEPS):
        if not is_first:
            time.sleep(0.02)
        loss = model(torch.ones(8, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if is_first:
            # The job's own rows: every third number, in two parts.
            run.log({"loss": loss.item()}, step=3 * step)
            run.log({"own": step}, step=3 * step)
        is_over = torch.tensor(float(names_rank_1() >= ENOUGH))
        dist.broadcast(is_over, 0)
        if is_over:
            break
    if is_first:
        run_id = mlflow.active_run().info.run_id
        run.finish()
        mlflow.end_run()
        writer.close()
        print("trackers have " + json.dumps(found(run_id)), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def found(run_id):
    rows = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wandb_rows.py")
    printed = subprocess.run([sys.executable, rows, FOLDER], stdout=subprocess.PIPE, text=True, check=True).stdout
    client = mlflow.MlflowClient()
    data = client.get_run(run_id).data
    history = {name: client.get_metric_history(run_id, name) for name in data.metrics}
    events = EventAccumulator(FOLDER + "/tensorboard")
    events.Reload()
    tags = events.Tags()
    return {
        "function": heard,
        "wandb": [json.loads(line) for line in printed.splitlines()],
        "mlflow": {name: [(one.step, one.value) for one in of] for name, of in history.items()},
        "mlflow_verdict": data.tags.get("paceline/verdict"),
        "tensorboard": {name: [(one.step, one.value) for one in events.Scalars(name)] for name in tags["scalars"]},
        "tensorboard_texts": [
            one.tensor_proto.string_val[0].decode() for name in tags["tensors"] for one in events.Tensors(name)
        ],
    }


main()
