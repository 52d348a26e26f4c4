//! Planted faults: is the right rank named, with the right cause, at what cost, and is anyone named without one?
//!
//! Four parts, never mixed in one figure. *Real* runs are training jobs of several processes in which one rank truly
//! burns processor time (or, for the network, sleeps after each all-reduce). With each comes a healthy run, and one or
//! more in which the fault comes and goes every few steps: they say what it truly costs, which is less than what was
//! planted where a rank had time to spare. *Shared* ones are the same with more ranks than this machine has cores. In
//! both, ranks exchange cores all the time, so that a slow core is no rank's own. *Plain* runs are healthy jobs as
//! people run them: ranks stay on the cores where the job puts them. *Simulated* runs are drawn by the simulator, up to
//! 1,024 ranks, and go through the same server code. Cases are drawn from a seed, so that a short run is a fair sample
//! of a long one.
#![allow(clippy::print_stdout, reason = "what the program is for")]

mod cases;
mod judge;
mod kept;
mod real;
mod simulated;
mod table;
mod toggled;

use std::path::PathBuf;

use anyhow::bail;
use paceline_tests::results::Results;

use cases::{Jobs, Random};
use judge::Outcome;
use kept::Records;

/// Cases are drawn from it.
const SEED: u64 = 20_261_120;

struct Options {
    real: usize,
    shared: usize,
    plain: usize,
    simulated: usize,
    keep: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::of_arguments()?;
    let mut results = Results::begin("faults");
    let mut random = Random::new(SEED);
    let mut outcomes: Vec<Outcome> = Vec::new();
    let Options { real, shared, plain, simulated, keep: kept } = &options;
    println!(
        "seed {SEED}: {real} real faults, {shared} of ranks that share cores and {simulated} simulated ones, each with a \
         healthy run; {plain} plain healthy runs"
    );
    println!("{}", judge::head());
    let mut keep = |outcome: Outcome| {
        println!("{}", outcome.line());
        results.add(outcome.to_json());
        outcomes.push(outcome);
    };
    let Jobs { own_cores, shared_cores } = Jobs::of_this_machine();
    let parts = [("real", own_cores, *real), ("shared", shared_cores, *shared)];
    for (kind, jobs, count) in parts.into_iter().filter(|(_, jobs, _)| !jobs.is_empty()) {
        for at in 0..count {
            let records = Records::of_case(kept.as_deref(), &format!("{kind}-{at:03}"));
            real::judge(&cases::real(at, &jobs, &mut random), &records, &mut keep)?;
        }
    }
    for at in 0..*plain {
        let records = Records::of_case(kept.as_deref(), &format!("plain-{at:03}"));
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

impl Options {
    fn of_arguments() -> anyhow::Result<Self> {
        let mut options = Self { real: 100, shared: 30, plain: 50, simulated: 200, keep: None };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().unwrap_or_default();
            match (name.as_str(), value.parse()) {
                ("--real", Ok(number)) => options.real = number,
                ("--shared", Ok(number)) => options.shared = number,
                ("--plain", Ok(number)) => options.plain = number,
                ("--simulated", Ok(number)) => options.simulated = number,
                ("--keep", _) if !value.is_empty() => options.keep = Some(value.into()),
                _ => bail!("usage: faults [--real N] [--shared N] [--plain N] [--simulated N] [--keep DIR]"),
            }
        }
        Ok(options)
    }
}
