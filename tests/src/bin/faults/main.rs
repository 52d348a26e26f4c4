//! Planted faults: is the right rank named, with the right cause, at what cost, and is anyone named without one?
//!
//! Two halves, never mixed in one figure. *Real* runs are training jobs of several processes in which one rank
//! truly burns processor time (or, for the network, sleeps after each all-reduce); each is followed by a
//! healthy run of the same job. *Simulated* runs are drawn by the simulator, up to 1,024 ranks, and go through
//! the same server code. Cases are drawn from a seed, so that a short run is a fair sample of a long one.
#![allow(clippy::print_stdout, reason = "what the program is for")]

mod cases;
mod judge;
mod real;
mod simulated;
mod table;

use anyhow::bail;
use paceline_tests::results::Results;

use cases::Random;
use judge::Outcome;

/// Cases are drawn from it.
const SEED: u64 = 20_261_120;

struct Counts {
    real: usize,
    healthy: usize,
    simulated: usize,
}

fn main() -> anyhow::Result<()> {
    let counts = arguments()?;
    let mut results = Results::begin("faults");
    let mut random = Random::new(SEED);
    let mut outcomes: Vec<Outcome> = Vec::new();
    println!(
        "seed {SEED}: {} real faults, {} healthy runs, {} simulated faults and as many healthy runs",
        counts.real, counts.healthy, counts.simulated
    );
    println!("{}", judge::head());
    let mut keep = |outcome: Outcome| {
        println!("{}", outcome.line());
        results.add(outcome.to_json());
        outcomes.push(outcome);
    };
    let data = tempfile::tempdir()?;
    for at in 0..counts.real.max(counts.healthy) {
        if at < counts.real {
            keep(real::faulty(data.path(), &cases::real(at, &mut random))?);
        }
        if at < counts.healthy {
            keep(real::healthy(data.path(), cases::job(at))?);
        }
    }
    for at in 0..counts.simulated {
        keep(simulated::faulty(at as u64, &cases::simulated(at, &mut random)));
        keep(simulated::healthy(at as u64));
    }
    let summary = table::summary(&outcomes);
    println!("\n{}", table::text(&outcomes));
    results.add(summary);
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

fn arguments() -> anyhow::Result<Counts> {
    let mut counts = Counts { real: 100, healthy: 100, simulated: 200 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let number = arguments.next().and_then(|number| number.parse().ok());
        match (name.as_str(), number) {
            ("--real", Some(number)) => counts.real = number,
            ("--healthy", Some(number)) => counts.healthy = number,
            ("--simulated", Some(number)) => counts.simulated = number,
            _ => bail!("usage: faults [--real N] [--healthy N] [--simulated N]"),
        }
    }
    Ok(counts)
}
