//! Measures the cost of observation for a real job: runs of char_lm with and without instrumentation, in rounds.
//!
//! Each round runs three arms, in an order that changes from round to round: *on* (with a server on this machine and
//! ranks that report to it), *off*, and *off* again. All arms are started in the same way. The comparison of on and off
//! is the overhead. The comparison of off and off shows the noise of this machine.
#![allow(clippy::print_stdout, reason = "the output of the program")]

#[path = "overhead/arm.rs"]
mod arm;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use arm::{Arm, Measured, Shape};
use clap::Parser;
use serde_json::{Value, json};
use testkit::results::{self, Results};
use testkit::spread::Spread;

/// All orders of the three arms, so that each arm is equally often in each position.
const ORDERS: [[Arm; 3]; 6] = {
    use Arm::{Off, OffAgain, On};
    [
        [On, Off, OffAgain],
        [OffAgain, Off, On],
        [Off, On, OffAgain],
        [OffAgain, On, Off],
        [On, OffAgain, Off],
        [Off, OffAgain, On],
    ]
};

/// Measures the cost of recording for char_lm, in rounds of one run with a server and two without
#[derive(Parser)]
struct Options {
    /// Number of ranks of each run
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Number of steps of each run
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(3 * arm::GROUP..))]
    steps: u64,
    /// Number of rounds
    #[arg(long, default_value_t = 20)]
    pairs: usize,
}

fn main() -> anyhow::Result<()> {
    let Options { ranks, steps, pairs } = Options::parse();
    let shape = Shape { ranks, steps };
    let mut results = Results::begin("overhead");
    println!("char_lm, {} ranks, {} steps, {pairs} rounds of on, off, off", shape.ranks, shape.steps);
    let mut rounds = Vec::new();
    for number in 0..pairs {
        let round = run_round(number, shape)?;
        results.add(round.to_json(number, shape));
        println!("{}", round.line(number));
        rounds.push(round);
    }
    let summary = summarize(&rounds);
    results.add(summary);
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// The measurements of one round.
struct Round {
    on: Measured,
    off: Measured,
    off_again: Measured,
}

fn run_round(number: usize, shape: Shape) -> anyhow::Result<Round> {
    let (mut on, mut off, mut off_again) = (None, None, None);
    for arm in ORDERS[number % ORDERS.len()] {
        let measured = Some(arm.run(shape, number).with_context(|| format!("round {number}, {arm:?}"))?);
        match arm {
            Arm::On => on = measured,
            Arm::Off => off = measured,
            Arm::OffAgain => off_again = measured,
        }
    }
    let (Some(on), Some(off), Some(off_again)) = (on, off, off_again) else { bail!("an arm did not run") };
    Ok(Round { on, off, off_again })
}

impl Round {
    fn line(&self, number: usize) -> String {
        let Self { on, off, off_again } = self;
        format!(
            "{:>3}  on {:8.3} ms/step {:7.2} cpu s   off {:8.3} {:7.2}   off {:8.3} {:7.2}",
            number + 1,
            on.step_seconds * 1e3,
            on.cpu_seconds,
            off.step_seconds * 1e3,
            off.cpu_seconds,
            off_again.step_seconds * 1e3,
            off_again.cpu_seconds
        )
    }

    fn to_json(&self, number: usize, shape: Shape) -> Value {
        let order: Vec<&str> = ORDERS[number % ORDERS.len()].iter().map(|arm| arm.name()).collect();
        json!({
            "what": "round", "ranks": shape.ranks, "steps": shape.steps, "order": order,
            "on": self.on.to_json(), "off": self.off.to_json(), "off_again": self.off_again.to_json(),
        })
    }
}

/// Prints the spread of the ratios and returns it as a line for the file.
fn summarize(rounds: &[Round]) -> Value {
    let wall = |measured: &Measured| measured.step_seconds;
    let cpu = |measured: &Measured| measured.cpu_seconds;
    println!("\nmedian of {} pairs, in % of off  [95 % interval of the median]  p10 to p90", rounds.len());
    let step_on = print_ratios(rounds, "step time, on vs. off", |r| wall(&r.on) / wall(&r.off));
    let step_off = print_ratios(rounds, "step time, off vs. off", |r| wall(&r.off_again) / wall(&r.off));
    let cpu_on = print_ratios(rounds, "CPU time of ranks, on vs. off", |r| cpu(&r.on) / cpu(&r.off));
    let cpu_off = print_ratios(rounds, "CPU time of ranks, off vs. off", |r| cpu(&r.off_again) / cpu(&r.off));
    let server =
        Spread::from_values(rounds.iter().map(|r| r.on.server_cpu_seconds / cpu(&r.on)).collect()).median;
    println!("CPU time of the server: {:.2} % of that of the observed ranks", server * 100.0);
    let step = Spread::from_values(rounds.iter().map(|round| wall(&round.off)).collect()).median;
    json!({
        "what": "summary", "unit": "ratio - 1", "step": step_on, "step_noise": step_off, "cpu": cpu_on,
        "cpu_noise": cpu_off, "server_cpu_share_of_ranks": server, "off_step_seconds": step, "calls": calls(step),
    })
}

fn print_ratios(rounds: &[Round], title: &str, ratio: impl Fn(&Round) -> f64) -> Value {
    let spread = Spread::from_values(rounds.iter().map(|round| ratio(round) - 1.0).collect());
    println!("{title:36} {spread}");
    spread.to_json()
}

/// Compares the cost of a step's recorded calls, from the record bench, with this job's step.
fn calls(step_seconds: f64) -> Value {
    let Some((path, nanos)) = newest_step_cost() else {
        println!("recorded calls: unknown; run `cargo xtask bench record` first");
        return Value::Null;
    };
    let share = nanos * 1e-9 / step_seconds;
    println!(
        "recorded calls of a step: {nanos:.0} ns (caches cold) = {:.4} % of the step, from {}",
        share * 100.0,
        path.display()
    );
    json!({ "nanos": nanos, "share_of_step": share })
}

/// Returns the newest result: the median nanoseconds of a cold step, less the calls that are made without an agent too.
fn newest_step_cost() -> Option<(PathBuf, f64)> {
    let files = std::fs::read_dir(results::folder()).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let path = files.filter(|path| path.to_string_lossy().ends_with("-record.jsonl")).max()?;
    let text = std::fs::read_to_string(&path).ok()?;
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let median = |what: &str| lines.iter().find(|line| line["what"] == what)?["median_ns"].as_f64();
    let nanos = median("step_cold")? - median("step_disabled")?;
    Some((path, nanos))
}
