//! Makes many runs of small PyTorch jobs in which things go wrong, each with Paceline and without it, and reports those
//! that end differently.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use anyhow::{Context as _, ensure};
use clap::Parser;
use serde_json::Value;
use testkit::mishaps;
use testkit::results::Results;

/// Checks that a job ends the same with Paceline and without it, whatever goes wrong in the observation
#[derive(Parser)]
struct Options {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first: usize,
    /// The number of runs
    #[arg(long, default_value_t = 1_000)]
    runs: usize,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let mut results = Results::begin("mishaps");
    let record = |line: &Value| {
        println!("{line}");
        results.add(line.clone());
    };
    let found = mishaps::run(options.first, options.runs, record)?.context("PyTorch is not installed")?;
    let different = found.different.len();
    println!("raw: {}", results.finish()?.display());
    ensure!(different == 0, "{different} of {} runs ended differently", options.runs);
    Ok(())
}
