//! Measures verdicts with planted faults: is the right rank named with the right cause and cost, and is a rank named
//! without a fault?
//!
//! There are four kinds of runs, which are never mixed in one figure:
//!
//! - *Real* runs are training jobs of several processes in which one rank really burns processor time (or, for the
//!   network, sleeps after each all-reduce). Each comes with a healthy run, and with one or more runs in which the
//!   fault turns on and off every few steps. The latter measure the true cost, which is less than the planted time if
//!   the rank had time to spare.
//! - *Shared* runs are the same with more ranks than this machine has cores.
//! - *Plain* runs are healthy jobs as users run them: ranks stay on the cores that the job binds them to.
//! - *Simulated* runs are drawn by the simulator, with up to 1,024 ranks, and use the same server code.
//!
//! In real and shared runs, ranks exchange cores all the time, so that a slow core slows all ranks alike. Cases are
//! drawn from a seed, so a short measurement is a fair sample of a long one.
#![allow(clippy::print_stdout, reason = "the output of the program")]

mod cases;
mod judge;
mod kept;
mod real;
mod simulated;
mod table;
mod toggled;

use std::path::PathBuf;

use clap::Parser;
use testkit::results::Results;

use cases::{Jobs, Random};
use judge::Outcome;
use kept::Records;

/// The seed from which cases are drawn.
const SEED: u64 = 20_261_120;

/// Plants faults in training jobs and judges the verdicts: the right rank, the right cause, the right cost
#[derive(Parser)]
struct Options {
    /// Faults in real jobs with a core per rank, each paired with a healthy run
    #[arg(long, default_value_t = 100, value_name = "N")]
    real: usize,
    /// Faults in real jobs whose ranks share cores, each paired with a healthy run
    #[arg(long, default_value_t = 30, value_name = "N")]
    shared: usize,
    /// Healthy jobs whose ranks stay on their cores
    #[arg(long, default_value_t = 50, value_name = "N")]
    plain: usize,
    /// Simulated faults, each paired with a healthy run
    #[arg(long, default_value_t = 200, value_name = "N")]
    simulated: usize,
    /// Store the records of all runs in this directory, and judge records that are already stored there
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let mut results = Results::begin("faults");
    let mut random = Random::new(SEED);
    let mut outcomes: Vec<Outcome> = Vec::new();
    let Options { real, shared, plain, simulated, keep: kept } = &options;
    println!(
        "seed {SEED}: {real} real faults, {shared} with shared cores and {simulated} simulated ones, each with a \
         healthy run; {plain} plain healthy runs"
    );
    println!("{}", judge::head());
    let mut keep = |outcome: Outcome| {
        println!("{}", outcome.line());
        results.add(outcome.to_json());
        outcomes.push(outcome);
    };
    let Jobs { own_cores, shared_cores } = Jobs::partition();
    let parts = [("real", own_cores, *real), ("shared", shared_cores, *shared)];
    for (kind, jobs, count) in parts.into_iter().filter(|(_, jobs, _)| !jobs.is_empty()) {
        for at in 0..count {
            let records = Records::new(kept.as_deref(), &format!("{kind}-{at:03}"));
            real::judge(&cases::real(at, &jobs, &mut random), &records, &mut keep)?;
        }
    }
    for at in 0..*plain {
        let records = Records::new(kept.as_deref(), &format!("plain-{at:03}"));
        keep(real::plain(cases::PLAIN[at % cases::PLAIN.len()], &records)?);
    }
    for at in 0..*simulated {
        keep(simulated::faulty(at as u64, &cases::simulated(at, &mut random)));
        keep(simulated::healthy(at as u64));
    }
    println!("\n{}", table::text(&outcomes));
    results.add(table::summary(&outcomes));
    println!("raw: {}", results.finish()?.display());
    Ok(())
}
