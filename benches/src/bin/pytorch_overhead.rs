//! Measures the cost of observing the collectives of a PyTorch job over gloo. One job runs steps with the hooks of its
//! process group and without them, in rounds, and without them again to show the noise.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Parser;
use serde_json::{Value, json};
use testkit::programs::program;
use testkit::results::Results;
use testkit::spread::Spread;
use testkit::torch;

const ROUNDS: usize = 60;

/// Measures the cost of the hooks for a PyTorch DDP job over gloo, in rounds of steps with and without them
#[derive(Parser)]
struct Options {}

fn main() -> anyhow::Result<()> {
    Options::parse();
    ensure!(torch::is_installed()?, "PyTorch is not installed");
    let mut results = Results::begin("pytorch");
    println!("DDP over gloo, 2 ranks, 4 buckets of 8 MiB, {ROUNDS} rounds of 8 steps on, off, off");
    let rounds = rounds()?;
    rounds.iter().for_each(|round| results.add(round.clone()));
    println!("median of {} pairs, in % of off  [95 % interval of the median]  p10 to p90", rounds.len());
    let against = |title: &str, arm: &str, figure: usize| {
        let of = |round: &Value, arm: &str| round[arm][figure].as_f64().unwrap_or(f64::NAN);
        let spread =
            Spread::from_values(rounds.iter().map(|round| of(round, arm) / of(round, "off") - 1.0).collect());
        println!("{title:36} {spread}");
        spread.to_json()
    };
    results.add(json!({
        "what": "summary",
        "unit": "ratio - 1",
        "step": against("step time, on vs. off", "on", 0),
        "step_noise": against("step time, off vs. off", "off_again", 0),
        "cpu": against("CPU time of rank 0, on vs. off", "on", 1),
        "cpu_noise": against("CPU time of rank 0, off vs. off", "off_again", 1),
    }));
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Runs the job and returns the lines that it prints: one per round, with the nanoseconds and the processor time of a
/// step for each arm.
fn rounds() -> anyhow::Result<Vec<Value>> {
    let data = tempfile::tempdir()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tests/hooks/pytorch/toggled.py");
    let output = Command::new(program("paceline"))
        .args(["attach", "--data", &data.path().to_string_lossy(), "--"])
        .arg(torch::program("torchrun"))
        .args(["--nproc-per-node", "2"])
        .arg(script)
        .arg(ROUNDS.to_string())
        // Prevents the agent from reducing its level of detail.
        .env("PACELINE_OVERHEAD_BUDGET", "100")
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    let rounds: Vec<Value> =
        printed.lines().filter_map(|line| serde_json::from_str(line.get(line.find('{')?..)?).ok()).collect();
    ensure!(rounds.len() == ROUNDS, "{} of {ROUNDS} rounds: {printed}{complaints}", rounds.len());
    rounds.iter().all(|round| round["on"].is_array()).then_some(rounds).context("a round lacks an arm")
}
