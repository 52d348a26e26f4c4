//! What observing a real job costs it: instrumented against uninstrumented runs of char_lm, in rounds.
//!
//! Each round runs three arms, in an order that changes from round to round: *on* (a server on this machine, and
//! ranks that report to it), *off*, and *off* once more. All are started alike. On against off is the overhead;
//! off against off is what this machine's noise makes of no difference at all.
#![allow(clippy::print_stdout, reason = "what the program is for")]

#[path = "overhead/arm.rs"]
mod arm;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use arm::{Arm, Measured, Shape};
use paceline_tests::results::{self, Results};
use paceline_tests::spread::Spread;
use serde_json::{Value, json};

/// Every order of the three arms, so that none has a better place.
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

const USAGE: &str = "usage: overhead [--ranks 2] [--steps 120] [--pairs 20]";

struct Options {
    shape: Shape,
    pairs: usize,
}

fn main() -> anyhow::Result<()> {
    let Options { shape, pairs } = options()?;
    let mut results = Results::begin("overhead");
    println!("char_lm, {} ranks, {} steps, {pairs} rounds of on, off, off", shape.ranks, shape.steps);
    let mut rounds = Vec::new();
    for number in 0..pairs {
        let round = run_round(number, shape)?;
        results.add(round.to_json(number, shape));
        println!("{}", round.line(number));
        rounds.push(round);
    }
    let summary = summarise(&rounds);
    results.add(summary);
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

fn options() -> anyhow::Result<Options> {
    let mut options = Options { shape: Shape { ranks: 2, steps: 120 }, pairs: 20 };
    let mut words = std::env::args().skip(1);
    while let Some(flag) = words.next() {
        let value = words.next().and_then(|value| value.parse::<u64>().ok()).filter(|value| *value > 0);
        match (flag.as_str(), value) {
            ("--ranks", Some(ranks)) => options.shape.ranks = u32::try_from(ranks)?,
            ("--steps", Some(steps)) if steps >= 3 * arm::GROUP => options.shape.steps = steps,
            ("--pairs", Some(pairs)) => options.pairs = usize::try_from(pairs)?,
            _ => bail!("{flag}: {USAGE} (at least {} steps)", 3 * arm::GROUP),
        }
    }
    Ok(options)
}

/// One run of each arm.
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

/// Prints the ratios' spreads and gives them as a line for the file.
fn summarise(rounds: &[Round]) -> Value {
    let wall = |measured: &Measured| measured.step_seconds;
    let cpu = |measured: &Measured| measured.cpu_seconds;
    println!("\nmedian of {} pairs, in % of off  [95 % interval of the median]  p10 to p90", rounds.len());
    let step_on = against(rounds, "step time, on against off", |r| wall(&r.on) / wall(&r.off));
    let step_off = against(rounds, "step time, off against off", |r| wall(&r.off_again) / wall(&r.off));
    let cpu_on = against(rounds, "CPU time of ranks, on against off", |r| cpu(&r.on) / cpu(&r.off));
    let cpu_off = against(rounds, "CPU time of ranks, off against off", |r| cpu(&r.off_again) / cpu(&r.off));
    let server = Spread::of(rounds.iter().map(|r| r.on.server_cpu_seconds / cpu(&r.on)).collect()).median;
    println!("CPU time of the server: {:.2} % of that of the ranks it observed", server * 100.0);
    let step = Spread::of(rounds.iter().map(|round| wall(&round.off)).collect()).median;
    json!({
        "what": "summary", "unit": "ratio - 1", "step": step_on, "step_noise": step_off, "cpu": cpu_on,
        "cpu_noise": cpu_off, "server_cpu_share_of_ranks": server, "off_step_seconds": step, "calls": calls(step),
    })
}

fn against(rounds: &[Round], title: &str, ratio: impl Fn(&Round) -> f64) -> Value {
    let spread = Spread::of(rounds.iter().map(|round| ratio(round) - 1.0).collect());
    println!("{title:36} {spread}");
    spread.to_json()
}

/// What the recorded calls of a step take by the record bench, as a share of this job's step.
fn calls(step_seconds: f64) -> Value {
    let Some((path, nanos)) = newest_step_cost() else {
        println!("recorded calls: unknown, since there is no result of `cargo xtask bench record`");
        return Value::Null;
    };
    let share = nanos * 1e-9 / step_seconds;
    println!(
        "recorded calls of a step: {nanos:.0} ns (caches cold) = {:.4} % of it, by {}",
        share * 100.0,
        path.display()
    );
    json!({ "nanos": nanos, "share_of_step": share })
}

/// Median nanoseconds of a cold step, calls that are made without an agent too taken off.
fn newest_step_cost() -> Option<(PathBuf, f64)> {
    let files = std::fs::read_dir(results::folder()).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let path = files.filter(|path| path.to_string_lossy().ends_with("-record.jsonl")).max()?;
    let text = std::fs::read_to_string(&path).ok()?;
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let median = |what: &str| lines.iter().find(|line| line["what"] == what)?["median_ns"].as_f64();
    let nanos = median("step_cold")? - median("step_disabled")?;
    Some((path, nanos))
}
