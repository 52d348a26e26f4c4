//! Planted faults: is the right rank named, with the right cause, at what cost, and is anyone named without one?
//!
//! Two halves, never mixed in one figure. *Real* runs are training jobs of several processes in which one rank
//! truly burns processor time (or, for the network, sleeps after each all-reduce). With each comes a healthy run,
//! and one or more in which the fault comes and goes every few steps: they say what it truly costs, which is less
//! than what was planted where a rank had time to spare. *Simulated* runs are drawn by the simulator, up to 1,024
//! ranks, and go through the same server code. Cases are drawn from a seed, so that a short run is a fair sample of
//! a long one.
#![allow(clippy::print_stdout, reason = "what the program is for")]

mod cases;
mod judge;
mod real;
mod simulated;
mod table;
mod toggled;

use anyhow::bail;
use paceline_tests::results::Results;

use cases::Random;
use judge::Outcome;

/// Cases are drawn from it.
const SEED: u64 = 20_261_120;

struct Counts {
    real: usize,
    simulated: usize,
}

fn main() -> anyhow::Result<()> {
    let counts = arguments()?;
    let mut results = Results::begin("faults");
    let mut random = Random::new(SEED);
    let mut outcomes: Vec<Outcome> = Vec::new();
    println!(
        "seed {SEED}: {} real faults and {} simulated ones, each with a healthy run",
        counts.real, counts.simulated
    );
    println!("{}", judge::head());
    let mut keep = |outcome: Outcome| {
        println!("{}", outcome.line());
        results.add(outcome.to_json());
        outcomes.push(outcome);
    };
    for at in 0..counts.real {
        real::judge(&cases::real(at, &mut random), &mut keep)?;
    }
    for at in 0..counts.simulated {
        keep(simulated::faulty(at as u64, &cases::simulated(at, &mut random)));
        keep(simulated::healthy(at as u64));
    }
    println!("\n{}", table::text(&outcomes));
    results.add(table::summary(&outcomes));
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

fn arguments() -> anyhow::Result<Counts> {
    let mut counts = Counts { real: 100, simulated: 200 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let number = arguments.next().and_then(|number| number.parse().ok());
        match (name.as_str(), number) {
            ("--real", Some(number)) => counts.real = number,
            ("--simulated", Some(number)) => counts.simulated = number,
            _ => bail!("usage: faults [--real N] [--simulated N]"),
        }
    }
    Ok(counts)
}
