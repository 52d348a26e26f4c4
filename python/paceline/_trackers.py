"""Weights & Biases, MLflow and TensorBoard, as far as :func:`paceline.log` writes to them.

They are recognized by what they can do and found among the imported modules, so none of them is needed.
"""

import sys

STEP, VERDICT = "paceline/step", "paceline/verdict"
NAMES = ("wandb", "mlflow")


class Wandb:
    """A run of Weights & Biases.

    Its steps are the user's: a row without a step that is not committed joins the user's next one and moves nothing. The
    figures have an axis of their own, Paceline's step.
    """

    def __init__(self, run):
        self.run = run
        run.define_metric(STEP, hidden=True)
        run.define_metric("paceline/*", step_metric=STEP)

    def write(self, figures, verdict, step):
        # A run refuses rows once it has ended, which is not an error of the job.
        if getattr(self.run, "_is_finished", False):
            return
        row = dict(figures)
        row[STEP] = step
        if verdict is not None:
            row[VERDICT] = verdict
        self.run.log(row, commit=False)


class Mlflow:
    """A run of MLflow. Each of its metrics has steps of its own. The verdict is a tag."""

    def __init__(self, mlflow, run_id):
        self.mlflow, self.run_id = mlflow, run_id
        self.verdict = None

    def write(self, figures, verdict, step):
        self.mlflow.log_metrics(figures, step=step, run_id=self.run_id)
        if verdict not in (None, self.verdict):
            self.mlflow.MlflowClient().set_tag(self.run_id, VERDICT, verdict)
            self.verdict = verdict


class TensorBoard:
    """A `SummaryWriter`. The verdict is a text."""

    def __init__(self, writer):
        self.writer = writer
        self.verdict = None

    def write(self, figures, verdict, step):
        for name, value in figures.items():
            self.writer.add_scalar(name, value, step)
        if verdict not in (None, self.verdict):
            self.writer.add_text(VERDICT, verdict, step)
            self.verdict = verdict
        self.writer.flush()


class Function:
    """A function of the user: `to(figures, step)`. The verdict is among the figures."""

    def __init__(self, call):
        self.call = call

    def write(self, figures, verdict, step):
        self.call(dict(figures, **({} if verdict is None else {VERDICT: verdict})), step)


def tracker_of(to):
    """Returns a function that returns the tracker that `to` stands for, or None as long as it has no active run.

    :raises TypeError: if `to` is not a tracker.
    """
    name = getattr(to, "__name__", to)
    if to is None or (name in NAMES and (isinstance(to, str) or to is sys.modules.get(name))):
        return Active(NAMES if to is None else (name,))
    given = written_to(to)
    if given is None:
        raise TypeError(
            "cannot log to %r: give a run of wandb or mlflow, a SummaryWriter, a function, 'wandb', 'mlflow' or None" % (to,)
        )
    return lambda: given


def written_to(to):
    if hasattr(to, "add_scalar") and hasattr(to, "add_text"):
        return TensorBoard(to)
    if hasattr(to, "define_metric") and hasattr(to, "log"):
        return Wandb(to)
    run_id = getattr(getattr(to, "info", None), "run_id", None)
    if run_id is not None and "mlflow" in sys.modules:
        return Mlflow(sys.modules["mlflow"], run_id)
    return Function(to) if callable(to) else None


class Active:
    """Finds the active run of an imported tracker."""

    def __init__(self, names):
        self.names = names
        # What was found last: the run, and its tracker.
        self.run = self.tracker = None

    def __call__(self):
        runs = (active_run(name) for name in self.names)
        run = next((run for run in runs if run is not None), None)
        if run is not self.run:
            self.run, self.tracker = run, None if run is None else written_to(run)
        return self.tracker


def active_run(name):
    module = sys.modules.get(name)
    if module is None:
        return None
    if name == "wandb":
        return getattr(module, "run", None)
    # MLflow has an active run per thread, and a function that looks at all threads.
    fluent = sys.modules.get("mlflow.tracking.fluent")
    find = getattr(fluent, "_get_latest_active_run", None)
    return find() if find is not None else module.active_run()
