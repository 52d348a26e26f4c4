//! Tests of the Python package as a user installs it: from the wheel, into a new virtual environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use serde_json::json;
use testkit::fetch::skip;
use testkit::programs::{self, Server, get_json, said, wait_until};
use testkit::torch::Torch;

/// The longest time for a command.
const SECONDS: &str = "240";

/// A virtual environment with the wheel and, by reference, PyTorch.
pub(super) struct Environment {
    pub folder: tempfile::TempDir,
}

impl Environment {
    /// Returns `None` and prints the reason if there is no wheel or no PyTorch.
    pub fn new(python: &Path, torch: Option<&Torch>) -> anyhow::Result<Option<Self>> {
        let Some(wheel) = wheel()? else { return Ok(None) };
        let environment = Self { folder: tempfile::tempdir()? };
        let made = run(python, &["-m", "venv", &environment.folder.path().to_string_lossy()], &[])?;
        ensure!(made.status.success(), "{made:?}");
        if let Some(torch) = torch {
            if !torch.is_installed()? {
                return Ok(None);
            }
            let of_torch = run(&torch.program("python"), &["-c", PACKAGES], &[])?;
            fs::write(environment.packages()?.join("torch.pth"), of_torch.stdout)?;
        }
        let install =
            ["install", "--quiet", "--disable-pip-version-check", "--no-index", &wheel.to_string_lossy()];
        let installed = run(&environment.program("pip"), &install, &[])?;
        ensure!(installed.status.success(), "{installed:?}");
        Ok(Some(environment))
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.path().join("bin").join(name)
    }

    fn packages(&self) -> anyhow::Result<PathBuf> {
        let output = run(&self.program("python"), &["-c", PACKAGES], &[])?;
        Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
    }

    /// Runs a program of the environment, or of Python with `-m`.
    pub fn run(&self, name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<Output> {
        run(&self.program(name), arguments, variables)
    }

    /// Runs the commands that need no job.
    pub fn answers(&self) -> anyhow::Result<()> {
        for arguments in
            [&["--version"][..], &["--help"], &["serve", "--help"], &["report", "--help"], &["doctor"]]
        {
            let output = self.run("paceline", arguments, &[])?;
            ensure!(output.status.success() && !output.stdout.is_empty(), "{arguments:?}: {output:?}");
        }
        Ok(())
    }

    /// Removes the package, and checks that nothing with its name is left.
    pub fn is_removed(&self) -> anyhow::Result<()> {
        ensure!(self.files()?.lines().count() > 3);
        let removed = self.run("pip", &["uninstall", "--quiet", "--yes", "paceline"], &[])?;
        ensure!(removed.status.success(), "{removed:?}");
        ensure!(self.files()?.is_empty(), "{}", self.files()?);
        Ok(())
    }

    /// Returns the files of the environment with Paceline's name.
    fn files(&self) -> anyhow::Result<String> {
        let found = Command::new("find").arg(self.folder.path()).args(["-iname", "*paceline*"]).output()?;
        Ok(String::from_utf8(found.stdout)?)
    }
}

const PACKAGES: &str = "import sysconfig; print(sysconfig.get_path('purelib'))";

/// Returns the wheel that `cargo xtask wheel --dev` built.
fn wheel() -> anyhow::Result<Option<PathBuf>> {
    let folder = programs::folder().join("wheels");
    let Ok(files) = fs::read_dir(&folder) else {
        skip("the Python package", "there is none: run `cargo xtask wheel --dev`");
        return Ok(None);
    };
    Ok(Some(files.last().context("the folder of wheels is empty")??.path()))
}

fn run(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<Output> {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", SECONDS]).arg(program).args(arguments).envs(variables.iter().copied());
    Ok(command.output()?)
}

const SCRIPT: &str = "
import os, sys, time, torch, torch.distributed as dist
import paceline
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group('gloo')
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]), bucket_cap_mb=0.5)
# The group and the model exist already.
paceline.watch(server=sys.argv[1], name='watched')
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(200):
    if rank == 1:
        time.sleep(0.02)
    optimizer.zero_grad()
    loss = model(torch.randn(32, 256)).square().mean()
    loss.backward()
    optimizer.step()
if rank == 0:
    print('loss', loss.item(), flush=True)
dist.barrier()
os._exit(0)
";

#[test]
fn the_wheel_has_the_program_and_watch_and_its_removal_leaves_nothing() -> anyhow::Result<()> {
    let Some(environment) = Environment::new(Path::new("python3"), Some(&Torch::newest()))? else {
        return Ok(());
    };
    environment.answers()?;
    let script = environment.folder.path().join("train.py");
    fs::write(&script, SCRIPT)?;
    let script = script.to_string_lossy();
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    // Without an id for the rendezvous, torchrun says "none" as the id of the run.
    let torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2"];
    let train = |server: &str, variables: &[(&str, &str)]| -> anyhow::Result<String> {
        let arguments = [&torchrun[..], &[&*script, server]].concat();
        let output = environment.run("python", &arguments, variables)?;
        let (printed, complaints) = said(&output);
        ensure!(output.status.success(), "{printed}{complaints}");
        let line = printed.lines().find(|line| line.starts_with("loss ")).context(complaints)?;
        Ok(line.to_owned())
    };
    let budget = ("PACELINE_OVERHEAD_BUDGET", "100");
    let watched = train(&server.address, &[budget])?;
    let runs = || get_json(&format!("{}/api/v1/runs", server.address)).ok();
    let run = wait_until("the run", || {
        let runs = runs()?;
        let run = runs.as_array()?.iter().find(|run| run["name"] == "watched")?;
        (run["steps"].as_u64()? > 100).then(|| run["run"].clone())
    })?;
    let report =
        get_json(&format!("{}/api/v1/runs/{}?window=all", server.address, run.as_str().unwrap_or_default()))?;
    ensure!(report["verdicts"][0]["culprit"] == json!({ "rank": 1 }), "{report:#}");
    ensure!(report["ledger"][0]["forward_nanos"].as_u64() > Some(0), "{report:#}");

    // Switched off, or without a server that answers, the job computes the same.
    ensure!(train(&server.address, &[("PACELINE", "off")])? == watched);
    ensure!(runs().is_some_and(|runs| runs.as_array().map(Vec::len) == Some(1)), "{:?}", runs());
    ensure!(train("http://127.0.0.1:1", &[])? == watched);

    environment.is_removed()
}

/// No free-threaded Python is at hand. Its flag is the only thing of it that the package reads.
#[test]
fn a_free_threaded_python_is_not_observed_and_the_package_says_so() -> anyhow::Result<()> {
    let Some(environment) = Environment::new(Path::new("python3"), None)? else { return Ok(()) };
    let watch =
        "import sys; sys.abiflags = 't'; import paceline; print(paceline.watch(server='http://127.0.0.1:1'))";
    let (printed, complaints) = said(&environment.run("python", &["-c", watch], &[])?);
    ensure!(printed == "False\n", "{printed}{complaints}");
    ensure!(complaints.contains("free-threaded"), "{complaints}");
    Ok(())
}
