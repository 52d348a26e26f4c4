//! A job with a planted fault, and what its report must say.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::fetch::skip;
use testkit::frameworks::Framework;
use testkit::programs::{program, report, said};

/// The longest time for a job. Most take a quarter of a minute.
const SECONDS: &str = "240";
/// Set by `cargo xtask test --all-frameworks`.
const ALL: &str = "PACELINE_ALL_FRAMEWORKS";

/// A script of this folder, which runs in two processes and sleeps in the data set of rank 1.
pub(crate) struct Job {
    pub(crate) script: &'static str,
    /// The parameter updates.
    pub(crate) steps: u32,
    /// What the script gets after the number of steps and a folder.
    pub(crate) more: &'static [&'static str],
    /// The share of the updates that must be observed.
    pub(crate) observed: f64,
}

/// Returns the path of a script.
pub(crate) fn script(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frameworks/jobs");
    folder.join(name).to_string_lossy().into_owned()
}

/// Returns whether a framework that is not tested by default is tested and installed.
pub(crate) fn is_wanted(framework: Framework) -> anyhow::Result<bool> {
    if env::var_os(ALL).is_none() {
        skip(framework.name, "run `cargo xtask test --all-frameworks`");
        return Ok(false);
    }
    framework.is_installed()
}

/// Runs a command that must succeed. Returns its standard output.
pub(crate) fn run(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<String> {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", SECONDS]).arg(program).args(arguments).env_remove("PACELINE_SERVER");
    let output = command.envs(variables.iter().copied()).output()?;
    let (printed, complaints) = said(&output);
    ensure!(output.status.success(), "{printed}{complaints}");
    Ok(printed)
}

/// The arguments of a Python that start a script on two ranks, as `torchrun` does.
pub(crate) const TORCHRUN: [&str; 4] = ["-m", "torch.distributed.run", "--nproc-per-node", "2"];

impl Job {
    /// Runs the job with `paceline run` and this Python. Returns the report.
    pub(crate) fn run(&self, python: &Path) -> anyhow::Result<Value> {
        let (data, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let (data, folder) = (data.path(), folder.path().to_string_lossy());
        let (script, steps) = (script(self.script), self.steps.to_string());
        let start = ["run", "--data", &data.to_string_lossy(), &python.to_string_lossy()];
        let arguments = [&start[..], &TORCHRUN, &[&*script, &*steps, &*folder], self.more].concat();
        // The programs of the framework's own environment come first, as if it were activated.
        let path = path_with(python)?;
        let variables = [
            // Observes in full detail, however busy the machine is.
            ("PACELINE_OVERHEAD_BUDGET", "100"),
            ("DS_ACCELERATOR", "cpu"),
            ("PATH", &*path),
        ];
        let printed = run(&program("paceline"), &arguments, &variables)?;
        ensure!(printed.contains(&format!("steps {steps}")), "{printed}");
        report(data, "latest")
    }

    /// Checks that most steps were observed and that rank 1 is named: with the cause and the planted line.
    pub(crate) fn is_understood(&self, report: &Value) -> anyhow::Result<()> {
        ensure!(report["ranks"] == 2, "{report:#}");
        let steps = report["steps"].as_f64().unwrap_or_default();
        let wanted = self.observed * f64::from(self.steps);
        ensure!(steps >= wanted && steps <= f64::from(self.steps), "{steps} of {}: {report:#}", self.steps);
        let line = self.planted_line()?;
        let is_it = |verdict: &&Value| {
            verdict["culprit"] == json!({ "rank": 1 })
                && verdict["cause"] == "input"
                && verdict["code"]["at"].as_str().is_some_and(|at| at.contains(&line))
        };
        let verdicts = report["verdicts"].as_array().context("no verdicts")?;
        ensure!(verdicts.iter().any(|verdict| is_it(&verdict)), "expected {line}: {verdicts:#?}");
        // The planted sleep is no more than what the ledger calls input.
        let [healthy, slow] = report["ledger"].as_array().map_or(&[][..], Vec::as_slice) else {
            anyhow::bail!("{report:#}")
        };
        ensure!(
            slow["input_nanos"].as_u64() > healthy["input_nanos"].as_u64().map(|input| 3 * input),
            "{report:#}"
        );
        Ok(())
    }

    /// Checks that the ledger of each rank has all of these phases.
    pub(crate) fn has_phases(report: &Value, phases: &[&str]) -> anyhow::Result<()> {
        for rank in report["ledger"].as_array().into_iter().flatten() {
            for phase in phases {
                let spent = rank[format!("{phase}_nanos")].as_u64();
                ensure!(spent > Some(0), "no {phase}: {:#}", report["ledger"]);
            }
        }
        Ok(())
    }

    /// Returns the script's line with the planted fault, as a report names it: `hf_trainer.py:12 `.
    pub(crate) fn planted_line(&self) -> anyhow::Result<String> {
        let text = std::fs::read_to_string(script(self.script))?;
        let at = text.lines().position(|line| line.ends_with("  # planted")).context("no planted line")?;
        Ok(format!("{}:{} ", self.script, at + 1))
    }
}

fn path_with(python: &Path) -> anyhow::Result<String> {
    let own = python.parent().context("Python has no folder")?.to_path_buf();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([own].into_iter().chain(env::split_paths(&path)))?;
    Ok(path.to_string_lossy().into_owned())
}
