//! Measures what it costs a PyTorch DDP job over gloo to be observed: by `paceline attach`, and beside it by PyTorch's own
//! profiler, by TraceML and by a communication hook in Python. Each job is a process of its own, and the jobs of one round
//! run one after another.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Parser;
use serde_json::{Map, Value, json};
use testkit::frameworks::TRACEML;
use testkit::programs::program;
use testkit::results::Results;
use testkit::spread::Spread;
use testkit::torch;

/// The ways to observe, and the job alone twice: the difference is the noise.
const ARMS: [&str; 6] = ["alone", "paceline", "profiler", "alone_again", "communication_hook", "traceml"];

/// Measures the cost of observing a PyTorch DDP job over gloo, in rounds of one job per way to observe
#[derive(Parser)]
struct Options {
    /// Rounds of jobs for each number of ranks
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Steps of a job, after 30 steps to warm up
    #[arg(long, default_value_t = 60)]
    steps: usize,
    /// Width of the model. With a narrow one, a step takes little, and what the hooks take of the main thread stands out
    #[arg(long, default_value_t = 768)]
    width: u32,
    /// Numbers of ranks; one rank leaves a core free on a machine with two
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    ranks: Vec<u32>,
    /// The ways to observe, besides the job alone
    #[arg(long, value_delimiter = ',', default_values_t = ARMS[1..].iter().map(ToString::to_string))]
    arms: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    ensure!(torch::is_installed()? && TRACEML.is_installed()?, "PyTorch or TraceML is not installed");
    let mut results = Results::begin("pytorch");
    for &ranks in &options.ranks {
        println!("DDP over gloo, ranks: {ranks}; {} rounds of {} steps", options.rounds, options.steps);
        let mut rounds = Vec::with_capacity(options.rounds);
        for number in 0..options.rounds {
            let round = round(number, ranks, &options)?;
            results.add(json!({ "what": "round", "ranks": ranks, "arms": round }));
            rounds.push(round);
        }
        results.add(summary(ranks, &rounds, &options.arms));
    }
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Runs one job per arm, and begins with another arm in each round.
fn round(number: usize, ranks: u32, options: &Options) -> anyhow::Result<Map<String, Value>> {
    let mut arms: Vec<&str> =
        std::iter::once(ARMS[0]).chain(options.arms.iter().map(String::as_str)).collect();
    let first = number % arms.len();
    arms.rotate_left(first);
    arms.into_iter().map(|arm| Ok((arm.to_owned(), job(arm, ranks, options)?))).collect()
}

fn summary(ranks: u32, rounds: &[Map<String, Value>], arms: &[String]) -> Value {
    println!("median of {} pairs, in % of alone  [95 % interval of the median]  p10 to p90", rounds.len());
    let mut summary = json!({ "what": "summary", "ranks": ranks, "unit": "ratio - 1" });
    let value =
        |round: &Map<String, Value>, arm: &str, figure: &str| round[arm][figure].as_f64().unwrap_or(f64::NAN);
    let mut add = |figure: &str, arm: &str, ratios: Vec<f64>| {
        let spread = Spread::from_values(ratios);
        println!("{figure:7} {arm:20} {spread}");
        summary[figure][arm] = spread.to_json();
    };
    for figure in ["step", "mean", "cpu", "main", "job"] {
        for arm in arms {
            // What the job's own threads use has the hooks in it, and not the agent's threads.
            let figure_of = |round, arm| match figure {
                "job" => value(round, arm, "cpu") - value(round, arm, "agent"),
                figure => value(round, arm, figure),
            };
            add(
                figure,
                arm,
                rounds.iter().map(|round| figure_of(round, arm) / figure_of(round, "alone") - 1.0).collect(),
            );
        }
    }
    // Of the processor time of a step alone.
    for who in ["agent", "server"] {
        let share = |round| value(round, "paceline", who) / value(round, "alone", "cpu");
        if arms.iter().any(|arm| arm == "paceline") {
            add(who, "paceline", rounds.iter().map(share).collect());
        }
    }
    let more_micros = |arm: &String| {
        let more = |round| (value(round, arm, "main") - value(round, "alone", "main")) / 1e3;
        let more = Spread::from_values(rounds.iter().map(more).collect()).to_json();
        println!("{arm}: more processor time of the main thread, in µs per step: {more}");
        (arm.clone(), more)
    };
    summary["more_micros_of_main"] = Value::Object(arms.iter().map(more_micros).collect());
    summary
}

/// Runs a job and returns what it prints: the median and the mean of its steps, and the processor time per step of rank 0's process, of
/// its main thread, of the agent's threads in it and of the server, in nanoseconds.
fn job(arm: &str, ranks: u32, options: &Options) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tests/hooks/pytorch/peers.py");
    let ranks = ranks.to_string();
    let mut command = match arm {
        "paceline" => {
            let mut command = Command::new(program("paceline"));
            command.args(["attach", "--data"]).arg(folder.path()).arg("--").arg(torch::program("torchrun"));
            command
        }
        "traceml" => {
            let mut command = Command::new(TRACEML.program("traceml"));
            command.arg("run").arg(&script).args(["--mode", "summary", "--logs-dir"]).arg(folder.path());
            command
        }
        _ => Command::new(torch::program("torchrun")),
    };
    command.args(["--nproc-per-node", &ranks]);
    if arm != "traceml" {
        command.arg(&script);
    }
    let path = std::env::join_paths(
        [TRACEML.program(""), torch::program("")]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let output = command
        .current_dir(folder.path())
        .envs([("ARM", arm), ("STEPS", &options.steps.to_string()), ("OMP_NUM_THREADS", "1")])
        .env("WIDTH", options.width.to_string())
        .env("PATH", path)
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let found =
        printed.lines().find_map(|line| serde_json::from_str(line.get(line.find("{\"step\"")?..)?).ok());
    found.with_context(|| format!("{arm}: {printed}{}", String::from_utf8_lossy(&output.stderr)))
}
