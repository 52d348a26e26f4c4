"""Paceline observes data-parallel training: which rank is late, why, and what that costs.

Call :func:`watch` anywhere before training. ``paceline run torchrun ...`` and ``paceline attach`` do it without a line
in the script. :func:`workload` states what a step computes, for the throughput and the MFU. :func:`resume` states the step of the
checkpoint that a restarted job continues from. :func:`label` states a fact about the run, such as its accuracy. :func:`log` brings
the figures to Weights & Biases, MLflow or TensorBoard.
"""

import os
import sys

__all__ = ["label", "log", "resume", "transformer_flops", "watch", "workload"]


def watch(server=None, name=None, run=None):
    """Observes this process's training and reports to a server.

    The job computes the same results with it and without it. The call may come before or after ``import torch``, and
    before or after the process groups and the model are created, at the same place on every rank. A second call changes
    nothing, and neither does a call under ``paceline attach``.

    :param server: The server's address, for instance ``http://127.0.0.1:8080``. Default: the variable
        ``PACELINE_SERVER``. Without either, nothing is observed.
    :param name: The name of the run, by which it is compared with others. Default: the variable ``PACELINE_RUN_NAME``,
        or else the name of the script.
    :param run: The id of the run, equal on all ranks. Default: the variable ``PACELINE_RUN_ID``, torchrun's
        ``TORCHELASTIC_RUN_ID``, Slurm's job, or else an id that rank 0 makes.
    :returns: Whether this process is observed from now on.
    """
    if is_off():
        return False
    given = {"PACELINE_SERVER": server, "PACELINE_RUN_NAME": name, "PACELINE_RUN_ID": run}
    os.environ.update({variable: value for variable, value in given.items() if value is not None})
    if not os.environ.get("PACELINE_SERVER"):
        return False
    from paceline._errors import guarded

    return guarded(start) is True


def start():
    # The native part is for Pythons with the lock: free-threaded builds, whose flag is "t", cannot load it.
    if "t" in sys.abiflags:
        from paceline._errors import say

        say("not observing this process: Paceline needs a Python with the global interpreter lock, and this is a free-threaded build")
        return False
    from paceline import _observe

    return _observe.start()


def workload(
    samples_per_step=None,
    unit=None,
    flops_per_sample=None,
    hardware_flops_per_sample=None,
    precision=None,
    peak_flops=None,
):
    """States what a step computes on this rank, for the throughput and the model FLOPs utilization (MFU).

    The call belongs on every rank, after :func:`watch` (without it under ``paceline run`` and ``paceline attach``), before
    training, and again when one of the values changes: each call states all of them. What is not stated is missing in the
    report, with its reason. A value that makes no sense is named on the error stream, and the job goes on.

    :param samples_per_step: How many samples this rank processes per parameter update, accumulation included.
    :param unit: What a sample is: ``"tokens"``, ``"images"``.
    :param flops_per_sample: The floating-point operations of one sample in the forward and the backward pass, each counted
        once. A multiplication and an addition are two. :func:`transformer_flops` counts those of a token.
    :param hardware_flops_per_sample: The same with recomputed activations, for the hardware FLOPs utilization (HFU).
    :param precision: The precision of the matrix multiplications: ``"fp32"``, ``"tf32"``, ``"fp16"``, ``"bf16"`` or
        ``"fp8"``. It selects the peak of a known device.
    :param peak_flops: The peak of this rank's device in operations per second, where its name does not tell it. On CPUs,
        ``"measure"`` multiplies matrices for 0.3 s. Where ranks share cores, all of them must do so at the same time.
    :returns: Whether the workload is reported.
    """
    if is_off() or "paceline._observe" not in sys.modules:
        return False
    from paceline import _workload
    from paceline._errors import guarded

    stated = (samples_per_step, unit, flops_per_sample, hardware_flops_per_sample, precision, peak_flops)
    return guarded(_workload.state, *stated) is True


def resume(step):
    """States that this process continues from a checkpoint.

    A restarted job repeats the steps after its checkpoint. With this call, Paceline knows which: they are in the goodput as
    repeated steps, and in no other figure twice. Without it, the steps of a restarted job follow those of its first attempt.

    The call belongs on every rank, where the checkpoint is loaded, before training. Only the first call counts.

    :param step: The number of parameter updates that the model of the checkpoint has had.
    :returns: Whether the step is reported.
    """
    if is_off() or "paceline._observe" not in sys.modules:
        return False
    from paceline._errors import guarded

    return guarded(state_step, step) is True


def state_step(step):
    from paceline._agent import agent
    from paceline._errors import say

    try:
        number = int(step)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # a text, an array, a number that is not finite
        number = -1
    if not 0 <= number < 2**63:
        say("resume: step=%r is not a number of updates; nothing is reported" % (step,))
        return False
    agent().resumed(number)
    return True


def label(key, value):
    """States a label of this rank, at any time. It replaces an earlier one with the same key.

    Reports list the labels of all ranks, and the list of runs shows those that all ranks share. ``paceline sweep`` has a column for
    the label ``accuracy``, if its value is a number. A text that is not a label is named on the error stream, and the job goes on.

    :param key: 1 to 64 ASCII letters, digits, and any of ``_ . - /``.
    :param value: A number or a text of at most 256 bytes, without commas and control characters.
    :returns: Whether the label is reported.
    """
    if is_off() or "paceline._observe" not in sys.modules:
        return False
    from paceline import _labels
    from paceline._errors import guarded

    return guarded(_labels.state, key, value) is True


def transformer_flops(parameters, layers, attention_width, sequence, causal=False):
    """Returns the floating-point operations of one token of a decoder-only transformer, forward and backward.

    That is 6 N + 12 L H Q T, as in appendix B of the PaLM paper (Chowdhery et al., 2022). Lookups of embeddings are no
    operations.

    :param parameters: N: the parameters that take part in matrix multiplications. Of a mixture of experts, the active ones.
    :param layers: L: the number of layers.
    :param attention_width: H Q: the heads of a layer times the width of a head.
    :param sequence: T: the length of a sequence in tokens.
    :param causal: Whether to count only the half of the attention that a causal kernel computes.
    """
    return 6 * parameters + (6 if causal else 12) * layers * attention_width * sequence


def log(to=None, every=30.0):
    """Logs Paceline's figures to the tracker that the job already uses.

    The call belongs on every rank, or only on rank 0; only rank 0 logs. A thread reads the figures from the server of
    :func:`watch` or ``paceline run`` and never delays the job. It logs, as far as they are known:

    - ``paceline/step_time_seconds``: the mean time from one step to the next over the recent steps;
    - ``paceline/samples_per_second``: the throughput, if the job counts its samples;
    - ``paceline/mfu``: the model FLOPs utilization, if :func:`workload` states what it needs;
    - ``paceline/scaling_efficiency``: measured against a run on fewer ranks;
    - ``paceline/implied_efficiency``: the share of the time in which ranks compute, which needs no other run;
    - ``paceline/exposed_communication_share``: the share of a step in which a rank waits for communication;
    - ``paceline/overlap_ratio``: the share of communication that the backward pass hides;
    - ``paceline/goodput``: the share of the wall time of all ranks that is steps that advance the job;
    - ``paceline/verdict``: who delays the run, why and at what cost, as a sentence.

    Every figure carries Paceline's step: the number of parameter updates. In Weights & Biases the figures have an axis of
    their own, ``paceline/step``, and leave the run's own steps alone: they join the next row that the job logs.

    :param to: A run of Weights & Biases, a run of MLflow, a ``SummaryWriter`` of TensorBoard, a function
        ``to(figures, step)``, or ``"wandb"`` or ``"mlflow"`` for the active run of one of them, whenever it starts.
        Default: the active run of whichever of the two is imported.
    :param every: How many seconds pass from one look at the figures to the next.
    :returns: Whether this process logs from now on.
    """
    if is_off():
        return False
    from paceline import _log

    return _log.start(to, every)


def is_off():
    """Returns whether ``PACELINE=off`` switches the observation off."""
    return os.environ.get("PACELINE", "").strip().lower() in ("off", "0", "false", "no")
