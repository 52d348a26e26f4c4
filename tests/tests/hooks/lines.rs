//! Tests with real PyTorch: the line of code of a planted fault is named.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use testkit::programs::{Server, get_json, program, report, wait_until};
use testkit::torch;

use super::pytorch::{attached, run, script, torchrun};

const SCRIPT: &str = "planted.py";
/// Returns the number of steps that take a job with this fault about eight seconds. A verdict needs some dozen steps, and
/// sampling takes 3 s from then on.
fn steps(fault: &str) -> &'static str {
    match fault {
        "garbage" => "100",
        _ => "260",
    }
}

/// Returns the lines of a fault in the script, as the report names them.
fn lines_of(fault: &str) -> anyhow::Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(script(SCRIPT))?;
    let comment = format!("  # {fault}");
    let lines = text.lines().enumerate().filter(|(_, line)| line.ends_with(&comment));
    let lines: BTreeSet<String> = lines.map(|(at, _)| format!("{SCRIPT}:{} ", at + 1)).collect();
    ensure!(!lines.is_empty(), "the script has no line of {fault}");
    Ok(lines)
}

fn job(fault: &str, workers: &str) -> Vec<String> {
    torchrun(&[&script(SCRIPT), fault, workers, steps(fault)])
}

/// Runs the job with a fault, and checks that rank 1 is named with the fault's line and one of the causes.
fn is_named(fault: &str, workers: &str, causes: &[&str]) -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let (data, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    run(|| {
        let mut command = attached(data.path(), &job(fault, workers));
        command.env("FOLDER", folder.path());
        command
    })?;
    let report = report(data.path(), "latest")?;
    let lines = lines_of(fault)?;
    let is_it = |verdict: &&Value| {
        let first = verdict["evidence"][0].as_str().unwrap_or_default();
        verdict["culprit"] == json!({ "rank": 1 })
            && causes.contains(&verdict["cause"].as_str().unwrap_or_default())
            && lines.iter().any(|line| first.contains(line.as_str()))
    };
    let verdicts = report["verdicts"].as_array().context("no verdicts")?;
    ensure!(
        verdicts.iter().any(|verdict| is_it(&verdict)),
        "expected {causes:?} in {lines:?}: {verdicts:#?}"
    );
    Ok(())
}

#[test]
fn a_sleep_in_the_data_set() -> anyhow::Result<()> {
    is_named("getitem", "0", &["input"])
}

#[test]
fn a_slow_decoder_in_worker_processes() -> anyhow::Result<()> {
    is_named("decode", "2", &["input"])
}

#[test]
fn a_slow_collate_function() -> anyhow::Result<()> {
    is_named("collate", "0", &["input"])
}

#[test]
fn a_python_loop_in_the_forward_pass() -> anyhow::Result<()> {
    is_named("forward", "0", &["compute", "processor", "more_work", "host"])
}

#[test]
fn a_lock_that_another_thread_holds() -> anyhow::Result<()> {
    is_named("lock", "0", &["host", "unknown"])
}

#[test]
fn garbage_that_is_collected_in_every_step() -> anyhow::Result<()> {
    is_named("garbage", "0", &["garbage_collection"])
}

#[test]
fn a_checkpoint_in_every_step() -> anyhow::Result<()> {
    is_named("checkpoint", "0", &["host", "unknown", "checkpoint"])
}

/// A child with its own process group, which is killed when the value is dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let _ended = Command::new("pkill").args(["-KILL", "-f", SCRIPT]).status();
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn ranks_of_a_hang_and_where_they_stand() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let (data, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let server = Server::start(data.path())?;
    let mut command = Command::new(program("paceline"));
    command.args(["run", "--server", &server.address]).args(job("hang", "0")).env("FOLDER", folder.path());
    let _job = Group(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    let hang = wait_until("the hang", || {
        let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
        let hang = runs[0]["hang"].clone();
        (hang["standing"].as_array()?.len() == 2).then_some(hang)
    })?;
    ensure!(hang["ranks"] == json!([1]), "{hang:#}");
    let [missing, waiting] = hang["standing"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        bail!("{hang:#}")
    };
    let line = lines_of("hang")?;
    let stands =
        |at: &Value| line.iter().any(|line| at["at"].as_str().is_some_and(|at| at.contains(line.as_str())));
    ensure!(missing["ranks"] == json!([1]) && stands(missing), "{hang:#}");
    ensure!(waiting["ranks"] == json!([0]) && !stands(waiting), "{hang:#}");
    asks_on_demand(&server, folder.path())
}

/// Asks the hanging ranks for their stacks in the format of speedscope.
fn asks_on_demand(server: &Server, folder: &Path) -> anyhow::Result<()> {
    let file = folder.join("stacks.json");
    let output = Command::new(program("paceline"))
        .args(["stacks", "--server", &server.address, "--millis", "300", "--format", "speedscope", "-o"])
        .arg(&file)
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let profile: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let names: Vec<&str> = profile["shared"]["frames"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|frame| frame["name"].as_str())
        .collect();
    ensure!(names.contains(&"step") && names.contains(&"_engine_run_backward"), "{names:?}");
    Ok(())
}
