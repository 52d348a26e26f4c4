//! Tests with real PyTorch over gloo: `paceline attach` observes a plain script, and no script is harmed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use paceline::launch::python::Package;
use serde_json::{Value, json};
use testkit::fetch::skip;
use testkit::programs::{program, report, said};
use testkit::torch::{self, Torch};

/// The longest time for a job. Each of these jobs takes less.
const JOB_SECONDS: &str = "240";
/// The message with which PyTorch sometimes aborts at the exit of a job on a busy machine, with or without the agent,
/// because one of gloo's threads still runs (pytorch/pytorch, pull request 179291).
const ABORTED: &str = "terminate called without an active exception";
const ATTEMPTS: usize = 4;

pub(super) fn script(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hooks/pytorch");
    folder.join(name).to_string_lossy().into_owned()
}

/// Returns the result that the job prints, without the prefix of its launcher.
pub(super) fn result_of(output: &Output) -> anyhow::Result<String> {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = printed.lines().find_map(|line| Some(line[line.find("loss ")?..].to_owned()));
    line.with_context(|| format!("{printed}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Runs a job, and runs it again if PyTorch aborts at its exit. Each abort is reported as a skipped attempt.
pub(super) fn run(mut job: impl FnMut() -> Command) -> anyhow::Result<Output> {
    for _ in 0..ATTEMPTS {
        let command = job();
        let mut bounded = Command::new("timeout");
        bounded.args(["-k", "5", JOB_SECONDS]).arg(command.get_program()).args(command.get_args());
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let output = bounded.envs(variables).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Ok(output);
        }
        ensure!(said.contains(ABORTED), "{}{said}", String::from_utf8_lossy(&output.stdout));
        skip("an attempt of a PyTorch job", &format!("PyTorch aborted at its exit: {ABORTED}"));
    }
    anyhow::bail!("{ATTEMPTS} times: {ABORTED}")
}

pub(super) fn torchrun(arguments: &[&str]) -> Vec<String> {
    torchrun_of(&Torch::newest(), arguments)
}

pub(super) fn torchrun_of(torch: &Torch, arguments: &[&str]) -> Vec<String> {
    let start =
        [torch.program("torchrun").to_string_lossy().into_owned(), "--nproc-per-node".into(), "2".into()];
    start.into_iter().chain(arguments.iter().map(|&argument| argument.to_owned())).collect()
}

pub(super) fn attached(data: &Path, job: &[String]) -> Command {
    let mut command = attached_within_budget(data, job);
    // Observes in full detail, however busy the machine is.
    command.env("PACELINE_OVERHEAD_BUDGET", "100");
    command
}

fn attached_within_budget(data: &Path, job: &[String]) -> Command {
    let mut command = Command::new(program("paceline"));
    command.args(["attach", "--data", &data.to_string_lossy(), "--"]).args(job);
    command
}

/// Runs a script to its end under observation and returns the report.
fn reported(arguments: &[&str]) -> anyhow::Result<Value> {
    let (data, job) = (tempfile::tempdir()?, torchrun(arguments));
    run(|| attached(data.path(), &job))?;
    report(data.path(), "latest")
}

fn bytes_of_buckets(report: &Value) -> u64 {
    let buckets = report["buckets"].as_array().into_iter().flatten();
    buckets
        .filter(|bucket| bucket["function"] == "all_reduce")
        .filter_map(|bucket| bucket["bytes"].as_u64())
        .sum()
}

#[test]
fn an_unmodified_ddp_script_is_observed_and_computes_the_same() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let job = torchrun(&[&script("plain_ddp.py"), "5"]);
    let alone = run(|| {
        let mut command = Command::new(&job[0]);
        command.args(&job[1..]);
        command
    })?;
    let data = tempfile::tempdir()?;
    let watched = run(|| {
        let mut command = attached(data.path(), &job);
        command.envs([("SLOW_RANK", "1"), ("SLOW_SECONDS", "0.06")]);
        command
    })?;
    ensure!(result_of(&alone)? == result_of(&watched)?, "observation changed the result: {watched:?}");
    let report = report(data.path(), "latest")?;
    ensure!(report["ranks"] == 2, "{report:#}");
    // 5 times 16 iterations, less those before the step is recognized.
    let steps = report["steps"].as_u64().unwrap_or_default();
    ensure!((42..80).contains(&steps), "{steps} steps: {report:#}");
    // Eight layers with 1,024 inputs and outputs and their biases, in 32-bit floats. Each byte of gradient is reduced
    // once per step.
    ensure!(bytes_of_buckets(&report) == 8 * (1_024 * 1_024 + 1_024) * 4, "{:#}", report["buckets"]);
    ensure!(report["overlap_ratio"].as_f64().is_some_and(|overlap| overlap > 0.2), "{report:#}");
    let verdicts = report["verdicts"].as_array().into_iter().flatten();
    let slow: Vec<&Value> = verdicts.filter(|verdict| verdict["culprit"] != "all").collect();
    let [slow] = slow[..] else { anyhow::bail!("expected a verdict on one rank: {report:#}") };
    let cost = slow["cost_nanos_per_step"].as_f64().unwrap_or(f64::NAN) / 1e6;
    ensure!(slow["culprit"] == json!({ "rank": 1 }), "{slow:#}");
    let versions = report["attributes"].as_array().into_iter().flatten();
    let versions: Vec<&str> = versions.filter_map(|attribute| attribute["name"].as_str()).collect();
    ensure!(versions.contains(&"torch") && versions.contains(&"python"), "{versions:?}");
    ensure!((30.0..90.0).contains(&cost), "planted 60 ms, found {cost} ms: {slow:#}");
    Ok(())
}

fn compiles_and_pickles(torch: &Torch) -> anyhow::Result<()> {
    if !torch.is_installed()? {
        return Ok(());
    }
    // This backend needs no C++ compiler.
    let job = torchrun_of(torch, &[&script("compiled.py"), "aot_eager"]);
    let alone = run(|| {
        let mut command = Command::new(&job[0]);
        command.args(&job[1..]);
        command
    })?;
    let data = tempfile::tempdir()?;
    let output = run(|| attached(data.path(), &job))?;
    ensure!(result_of(&alone)? == result_of(&output)?, "{:?} {:?}", result_of(&alone)?, result_of(&output)?);
    // The plain module comes last.
    let ledger = report(data.path(), "latest")?["ledger"].clone();
    ensure!(ledger[0]["forward_nanos"].as_u64() > Some(0), "not observed: {ledger:#}");
    Ok(())
}

#[test]
fn a_model_is_compiled_copied_and_pickled_as_without_observation() -> anyhow::Result<()> {
    compiles_and_pickles(&Torch::newest())
}

#[test]
fn a_model_is_compiled_copied_and_pickled_as_before_in_an_older_release() -> anyhow::Result<()> {
    Torch::old_for("compiled and pickled models").map_or(Ok(()), |torch| compiles_and_pickles(&torch))
}

#[test]
fn a_job_that_fails_is_explained_by_the_exception_of_its_first_failed_rank() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let by_torchrun = torchrun(&[&script("fails.py"), "400"]);
    let data = [tempfile::tempdir()?, tempfile::tempdir()?];
    // The launcher ends rank 0 some seconds later.
    let mut by_paceline = Command::new(program("paceline"));
    by_paceline.args(["run", "-n", "2", "--attach", "--data", &data[1].path().to_string_lossy(), "--"]);
    by_paceline.arg(torch::program("python")).args([&*script("fails.py"), "400", "waits"]);
    for (data, mut job) in data.iter().zip([attached(data[0].path(), &by_torchrun), by_paceline]) {
        let output = job.output()?;
        ensure!(!output.status.success(), "{output:?}");
        let failure = report(data.path(), "latest")?["failure"]["sentence"].clone();
        let failure = failure.as_str().context("no failure")?;
        let expected = "Rank 1 ended with exit code 1 (torch.OutOfMemoryError at fails.py:19: CUDA out of memory. Tried to \
             allocate 2.00 GiB)";
        ensure!(failure.starts_with(expected), "{failure}");
    }
    Ok(())
}

/// Observes a job in which a rank is killed, and returns what the report says of its failure.
fn killed(job: &[String]) -> anyhow::Result<String> {
    let data = tempfile::tempdir()?;
    let output = attached(data.path(), job).output()?;
    ensure!(!output.status.success(), "{output:?}");
    let report = report(data.path(), "latest")?;
    ensure!(report["state"] == "failed", "{}", report["state"]);
    Ok(report["failure"]["sentence"].as_str().context("no failure")?.to_owned())
}

#[test]
fn a_rank_that_is_killed_under_its_own_launcher_is_named_as_soon_as_the_job_has_ended() -> anyhow::Result<()>
{
    if !torch::is_installed()? {
        return Ok(());
    }
    // torchrun leaves the other rank time to say that it lost its neighbor.
    let by_torchrun = killed(&torchrun(&[&script("fails.py"), "400", "killed"]))?;
    let named = "Rank 1 ended without a word, perhaps killed for lack of memory; it had finished step ";
    ensure!(
        by_torchrun.starts_with(named) && by_torchrun.ends_with("1 other rank failed with it."),
        "{by_torchrun}"
    );
    // A spawning process ends the others at once, so it may not show which rank was the first. No other one is named.
    let python = torch::program("python").to_string_lossy().into_owned();
    let by_spawn = killed(&[python, script("spawned.py"), "400".into(), "killed".into()])?;
    let is_open = by_spawn.ends_with("Which of them was the first is not known.");
    ensure!(by_spawn.starts_with("Rank 1 ended without a word") || is_open, "{by_spawn}");
    Ok(())
}

/// The smallest share of the observed steps that a replay of the records reproduces. Four ranks on two cores take turns, which
/// no replay knows: on such machines it reproduces about 60 % of the steps.
const REPLAYED: f64 = 0.3;

#[test]
fn a_mesh_of_process_groups_is_observed_in_full_and_by_samples() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let torchrun = Torch::newest().program("torchrun").to_string_lossy().into_owned();
    let job: Vec<String> = [torchrun, "--nproc-per-node=4".into(), script("mesh.py"), "300".into()].into();
    for (budget, least_steps) in [("100", 100), ("1", 20)] {
        let data = tempfile::tempdir()?;
        run(|| {
            let mut command = attached(data.path(), &job);
            command.env("PACELINE_OVERHEAD_BUDGET", budget);
            command
        })?;
        let report = report(data.path(), "latest")?;
        let steps = report["steps"].as_u64().unwrap_or_default();
        ensure!(steps >= least_steps, "{steps} steps: {report:#}");
        ensure!(report["overlap_ratio"].as_f64().is_some(), "{:#}", report["overlap_ratio"]);
        let gaps = report["gaps"].as_array().context("no gaps")?;
        ensure!(!gaps.iter().any(|gap| gap["kind"] == "parameters"), "{gaps:#?}");
        let replayed = report["what_if"]["steps"].as_u64().unwrap_or_default();
        ensure!(replayed as f64 > REPLAYED * steps as f64, "{replayed} of {steps}: {:#}", report["what_if"]);
    }
    Ok(())
}

#[test]
fn a_module_in_the_mode_of_evaluation_beside_one_that_trains_is_not_evaluated() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let report = reported(&[&script("adversaries.py"), "600"])?;
    let ledger = report["ledger"].as_array().context("no ledger")?;
    ensure!(ledger.len() == 2 && ledger.iter().all(|rank| rank["pauses_nanos"][1] == 0), "{report:#}");
    ensure!(ledger.iter().all(|rank| rank["forward_nanos"].as_u64() > Some(0)), "not observed: {report:#}");
    Ok(())
}

/// PyTorch does not name the size of a sparse tensor.
#[test]
fn a_pytorch_job_with_sparse_gradients_is_observed() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let job = torchrun(&[&script("sparse.py"), "150"]);
    let output = run(|| attached(data.path(), &job))?;
    let (_, complaints) = said(&output);
    ensure!(!complaints.contains("not observing"), "{complaints}");
    let report = report(data.path(), "latest")?;
    // Less those before the step is recognized.
    let steps = report["steps"].as_u64().unwrap_or_default();
    ensure!((60..150).contains(&steps), "{steps} steps: {report:#}");
    // The rows of the embedding, and the layer's weights and biases in 32-bit floats.
    let buckets = report["buckets"].as_array().into_iter().flatten();
    let mut buckets: Vec<_> =
        buckets.map(|bucket| (bucket["bytes"].as_u64(), bucket["collectives"].as_u64())).collect();
    buckets.sort_unstable();
    ensure!(buckets == [(Some(0), Some(steps)), (Some(17 * 16 * 4), Some(steps))], "{buckets:?}");
    let has_bandwidth = |bucket: &&Value| bucket["algbw"].is_number();
    let measured: Vec<_> = report["buckets"].as_array().into_iter().flatten().filter(has_bandwidth).collect();
    ensure!(measured.len() == 1 && measured[0]["bytes"] != 0, "a size of 0 is unknown: {measured:?}");
    Ok(())
}

/// Tests a short job under the default budget. Steps are observed completely or not at all.
#[test]
fn a_slow_loader_is_named_within_sixty_steps_and_the_default_budget() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let job = torchrun(&[&script("slow_loader.py"), "60", "1", "0.036"]);
    run(|| attached_within_budget(data.path(), &job))?;
    let report = report(data.path(), "latest")?;
    let verdicts = report["verdicts"].as_array().into_iter().flatten();
    let slow: Vec<&Value> = verdicts.filter(|verdict| verdict["culprit"] != "all").collect();
    let [slow] = slow[..] else { anyhow::bail!("expected a verdict on one rank: {report:#}") };
    ensure!(slow["culprit"] == json!({ "rank": 1 }) && slow["cause"] == "input", "{slow:#}");
    let cost = slow["cost_nanos_per_step"].as_f64().unwrap_or(f64::NAN) / 1e6;
    ensure!((18.0..60.0).contains(&cost), "planted 36 ms, found {cost} ms: {slow:#}");
    Ok(())
}

/// Runs Python with the package that `attach` adds, with `library` as the agent's library.
fn python(code: &str, library: &Path, folders: &[&Path]) -> anyhow::Result<Output> {
    let ours = Package::copy(&program("libpaceline_python.so"))?;
    let ours = PathBuf::from(ours.site());
    let path = std::env::join_paths([&*ours].into_iter().chain(folders.iter().copied()))?;
    let output = Command::new("timeout")
        .args(["-k", "5", JOB_SECONDS])
        .arg(python_program())
        .args(["-c", code])
        .envs([("PYTHONPATH", &*path), ("PACELINE_AGENT_LIBRARY", library.as_os_str())])
        .env("PACELINE_SERVER", "http://127.0.0.1:1")
        .output()?;
    Ok(output)
}

/// Returns PyTorch's Python if it is installed.
fn python_program() -> PathBuf {
    Some(torch::program("python")).filter(|python| python.is_file()).unwrap_or_else(|| "python3".into())
}

#[test]
fn the_jobs_sitecustomize_runs_and_ours_is_invisible() -> anyhow::Result<()> {
    let own = tempfile::tempdir()?;
    std::fs::write(own.path().join("sitecustomize.py"), "OWN = True\nprint('own module')\n")?;
    let code = "import sitecustomize, sys; print(sitecustomize.OWN, sum('paceline' in p for p in sys.path))";
    let output = python(code, Path::new("/dev/null"), &[own.path()])?;
    let (said, complaints) = said(&output);
    ensure!(said == "own module\nTrue 0\n" && complaints.is_empty(), "{said}{complaints}");
    Ok(())
}

#[test]
fn a_broken_library_is_reported_once_and_does_not_affect_the_job() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let code = "
import torch, torch.distributed as dist
dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
group = dist.new_group([0])
ones = torch.ones(4)
dist.all_reduce(ones, group=group)
batches = list(torch.utils.data.DataLoader(torch.arange(6.0), batch_size=2))
weight = torch.ones(1, requires_grad=True)
weight.sum().backward()
torch.optim.SGD([weight], lr=0.5).step()
print(ones.sum().item(), len(batches), weight.item())
dist.destroy_process_group()
";
    let broken = tempfile::NamedTempFile::new()?;
    std::fs::write(broken.path(), "no library at all")?;
    let output = python(code, broken.path(), &[])?;
    let (said, complaints) = said(&output);
    ensure!(said == "4.0 3 0.5\n" && output.status.success(), "{said}{complaints}");
    let ours: Vec<&str> = complaints.lines().filter(|line| line.starts_with("paceline: ")).collect();
    ensure!(ours.len() == 1 && ours[0].contains("file too short"), "{complaints}");
    Ok(())
}

/// Tests a module in place of PyTorch's optimizer, like that of releases 2.0 to 2.2, which do not report whether a step
/// is compiled.
#[test]
fn an_optimizer_of_an_old_release_works() -> anyhow::Result<()> {
    let old = tempfile::tempdir()?;
    let optim = old.path().join("torch/optim");
    std::fs::create_dir_all(&optim)?;
    std::fs::write(old.path().join("torch/__init__.py"), "from . import optim\n")?;
    std::fs::write(optim.join("__init__.py"), "from . import optimizer\n")?;
    let module = "hooks = []\nregister_optimizer_step_post_hook = hooks.append\n";
    std::fs::write(optim.join("optimizer.py"), module)?;
    let code = "
import torch
[hook] = torch.optim.optimizer.hooks
print(hook(None, (), {}))
";
    let output = python(code, &program("libpaceline_attach.so"), &[old.path()])?;
    let (said, complaints) = said(&output);
    ensure!(said == "None\n" && complaints.is_empty(), "{said}{complaints}");
    Ok(())
}

/// Tests that an exception of the job's signal handlers reaches the job from the only place where our hooks run Python
/// code, and that our own errors need no standard error.
#[test]
fn exceptions_of_the_jobs_signal_handlers_reach_the_job() -> anyhow::Result<()> {
    let code = "
import functools, signal, sys
from paceline import _errors, _waiter
from paceline._agent import agent
from paceline._native import Hooks

def handler(*_):
    raise TimeoutError('of the job')

def say(words):
    print(words)
    signal.raise_signal(signal.SIGUSR1)

signal.signal(signal.SIGUSR1, handler)
hooks = Hooks(agent(), 0, _waiter.Waiter(agent(), 0), say)
try:
    hooks.before(None)
except TimeoutError as error:
    print('it is', error)
print(hooks.before(None), hooks.after(None))

class Handlers:
    def handle(self, *_):
        raise TimeoutError('of a method')

    def __call__(self, *_):
        raise TimeoutError('of an instance')

for handle in Handlers().handle, Handlers(), functools.partial(handler):
    signal.signal(signal.SIGUSR1, handle)
    try:
        _errors.guarded(signal.raise_signal, signal.SIGUSR1)
    except TimeoutError as error:
        print('it is', error)
print(_errors.guarded(int, 'no number'))
sys.stderr.close()
sys.stderr = None
_errors.say('without a reader')
";
    let output = python(code, &program("libpaceline_attach.so"), &[])?;
    let (said, complaints) = said(&output);
    let reason = "AttributeError: 'NoneType' object has no attribute 'name'";
    let expected = format!(
        "not observing PyTorch any further: {reason}\nit is of the job\nNone None\n\
         it is of a method\nit is of an instance\nit is of the job\nNone\n"
    );
    ensure!(said == expected, "{said}{complaints}");
    Ok(())
}

/// Tests with Python objects in place of gloo's, without PyTorch.
#[test]
fn the_agent_waits_for_no_collective_during_interpreter_shutdown() -> anyhow::Result<()> {
    let code = "
import threading, time
from paceline._waiter import Waiter as waiter

class Agent:
    def ended(self, group, name, at, spent):
        print('ended', group, name, at > 0, spent > 0)

class Work:
    def __init__(self, name, tries):
        self.name, self.tries = name, tries

    def wait(self, piece):
        self.tries -= 1
        if self.tries >= 0:
            asked.set()
            time.sleep(piece.total_seconds())
            raise RuntimeError('not yet')
        if self.name == 3:
            raise RuntimeError('the other side went away')

    def is_completed(self):
        return self.tries < 0

    def __del__(self):
        print('let go', self.name, flush=True)
        gone.release()

class NoWait(Work):
    def wait(self, piece):
        raise RuntimeError('cannot be waited for')

gone, asked = threading.Semaphore(0), threading.Event()
one = waiter(Agent(), 7)
for name, tries in (1, 0), (2, 2), (3, 0):
    one.under_way.put((name, Work(name, tries)))
    gone.acquire()
other = waiter(Agent(), 8)
other.under_way.put((4, NoWait(4, 1)))
other.thread.join()
print('stopping', other.stopping)
asked.clear()
one.under_way.put((6, Work(6, 1_000_000)))
asked.wait()
";
    let output = python(code, Path::new("/dev/null"), &[])?;
    let (said, complaints) = said(&output);
    let ended = |work: u32| format!("ended 7 {work} True True\nlet go {work}\n");
    let expected = format!("{}{}{}let go 4\nstopping True\nlet go 6\n", ended(1), ended(2), ended(3));
    ensure!(said == expected && output.status.success(), "{said}{complaints}");
    let ours = "paceline: not observing PyTorch any further: RuntimeError: cannot be waited for\n";
    ensure!(complaints == ours, "{complaints}");
    Ok(())
}

/// Tests a job that does not destroy its groups. PyTorch keeps such groups, and the hooks in them, until Python has
/// exited.
#[test]
fn a_job_that_does_not_destroy_its_groups_ends_normally() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    run(|| attached(data.path(), &torchrun(&[&script("leaves_groups.py")])))?;
    let report = report(data.path(), "latest")?;
    ensure!(report["ranks"] == 2, "{report:#}");
    Ok(())
}

#[test]
fn processes_without_a_launcher_get_their_ranks_from_the_process_group() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let python = torch::program("python").to_string_lossy().into_owned();
    run(|| attached(data.path(), &[python.clone(), script("spawned.py"), "400".into()]))?;
    let report = report(data.path(), "latest")?;
    ensure!(report["ranks"] == 3 && report["steps"].as_u64().is_some_and(|steps| steps > 100), "{report:#}");
    Ok(())
}
