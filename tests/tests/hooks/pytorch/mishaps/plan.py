"""What happens in one run: the job, its end, and the faults, all chosen by a seed.

Both arms of a run follow the same plan. Faults of Paceline and of its server exist only in the arm with Paceline.
"""

import random

WATCH_AT = ("before_group", "after_group", "after_model", "in_training", "twice", "in_thread", "after_training")
EXTRAS = ("new_group", "async", "no_sync", "subprocess", "thread", "evaluation", "other_collectives", "destroyed_group")
# How a job ends. All but the first three end in the middle of the training.
ENDS = ("clean", "destroy", "leave", "sys.exit", "os._exit", "raise", "catch", "kill", "terminate", "handler", "interrupt", "alarm", "alarm")
FORKS = ("os._exit", "multiprocessing", "exec")
EXCEPTIONS = (
    "ValueError", "RuntimeError", "OSError", "MemoryError", "KeyError", "AttributeError", "TypeError", "RecursionError",
    "StopIteration", "AssertionError", "ImportError", "ReferenceError", "NotImplementedError", "PanicException",
)  # fmt: skip
LIBRARIES = ("missing", "no_library", "folder", "lacks_a_symbol", "without_functions")
# Attributes of PyTorch that the package uses, as (module, path).
TORCH = (
    ("torch.distributed.distributed_c10d", "ProcessGroup.register_pre_hook"),
    ("torch.distributed.distributed_c10d", "ProcessGroup.register_post_hook"),
    ("torch.distributed.distributed_c10d", "ProcessGroup.unregister_pre_hook"),
    ("torch.distributed.distributed_c10d", "ProcessGroup.group_name"),
    ("torch.distributed.distributed_c10d", "get_process_group_ranks"),
    ("torch.distributed.distributed_c10d", "get_backend_config"),
    ("torch.distributed.distributed_c10d", "_get_default_store"),
    ("torch.distributed.distributed_c10d", "split_group"),
    ("torch.optim.optimizer", "register_optimizer_step_post_hook"),
    ("torch.optim.optimizer", "register_optimizer_step_pre_hook"),
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter"),
    ("torch.autograd", "Variable._execution_engine"),
    ("torch.autograd", "Variable"),
    ("torch.nn.parallel.distributed", "DistributedDataParallel.register_forward_pre_hook"),
    ("torch", "compiler"),
    ("torch.version", "__version__"),
    ("torch.version", "cuda"),
)
SERVERS = ("healthy", "missing", "killed", "silent", "closing", "garbage", "errors", "endless", "full_disk", "no_address", "redirect")
VARIABLES = (
    {"PACELINE_RUN_ID": "../../no id"}, {"PACELINE_RUN_ID": ""}, {"PACELINE_SPOOL_BYTES": "many"}, {"PACELINE_SPOOL_BYTES": "0"},
    {"PACELINE_OVERHEAD_BUDGET": "-1"}, {"PACELINE_OVERHEAD_BUDGET": "0"}, {"RANK": "second"}, {"WORLD_SIZE": "0"},
    {"PACELINE_RUN_NAME": "\u00e9\n" * 200}, {"TORCHELASTIC_RUN_ID": "none"}, {"PACELINE": "off"}, {"PACELINE": " No "},
    {"HOME": "/nowhere"}, {"NCCL_PROFILER_PLUGIN": "other"},
)  # fmt: skip
# How the observation starts: in a fork of a process that has PyTorch, or in a new interpreter. The second takes seconds.
STARTS = ("fork",) * 57 + ("attach", "run", "site")


def of(seed):
    """Returns the plan of a seed."""
    pick = random.Random(seed)
    some = lambda chance: pick.random() < chance
    plan = {
        "seed": seed,
        "start": pick.choice(STARTS),
        "world": pick.choice((1, 2, 2)),
        "steps": pick.randint(4, 8),
        "workers": 2 if some(0.1) else 0,
        "watch_at": pick.choice(WATCH_AT),
        "extras": sorted(name for name in EXTRAS if some(0.2)),
        "end": pick.choice(ENDS) if some(0.6) else "clean",
        "end_in_flight": some(0.5),
        "end_rank": pick.randint(0, 1),
        "end_step": pick.randint(1, 3),
        "fork_at": pick.randint(0, 3) if some(0.2) else None,
        "fork": pick.choice(FORKS),
        "server": pick.choice(SERVERS) if some(0.5) else "healthy",
        "kill_server_at": pick.randint(0, 3),
        "library": pick.choice(LIBRARIES) if some(0.15) else None,
        "symbol": pick.random(),
        "torch": pick.choice(TORCH) if some(0.25) else None,
        "variables": pick.choice(VARIABLES) if some(0.2) else {},
        "no_stderr": some(0.05),
        "raising": [raising(pick) for _ in range(pick.choice((0, 1, 1, 1, 2)))],
    }
    plan["end_rank"] %= plan["world"]
    return plan


def raising(pick):
    """Returns a function, chosen by a number in [0, 1), that fails on its n-th call and on all later ones, or only then."""
    return {"function": pick.random(), "call": pick.choice((1, 1, 2, 3, 9)), "always": pick.random() < 0.5, "error": pick.choice(EXCEPTIONS)}
