//! Runs plain PyTorch jobs with one planted trouble each (`benches/gallery`), and judges the first sentence of each report by what
//! the job timed itself: who, why, in which line, how often, and at what cost.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::path::Path;

use anyhow::ensure;
use clap::Parser;
use serde_json::{Value, json};
use testkit::gallery::{judge, name_of, scripts};
use testkit::results::Results;
use testkit::torch;

/// Judges the first sentence on plain PyTorch jobs with a planted trouble
#[derive(Parser)]
struct Options {
    /// The number of times each job runs
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Jobs whose names contain this text; all if not given
    filter: Option<String>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    ensure!(torch::is_installed()?, "PyTorch cannot be installed: the Python package index is out of reach");
    let mut results = Results::begin("gallery");
    let mut judgments = Vec::new();
    for _ in 0..options.rounds {
        for script in scripts(options.filter.as_deref())? {
            let judged = judge(&script).unwrap_or_else(|error| failed(&script, &error));
            println!("{judged}");
            results.add(judged.clone());
            judgments.push(judged);
        }
    }
    for (kind, is_healthy) in [("planted", false), ("healthy", true)] {
        let is_of_kind =
            |judged: &&Value| judged["job"].as_str().is_some_and(|job| job.contains("healthy")) == is_healthy;
        let matching = || judgments.iter().filter(is_of_kind);
        let right = matching().filter(|judged| judged["right"] == true).count();
        let total = json!({ "what": "total", "kind": kind, "right": right, "jobs": matching().count() });
        println!("{total}");
        results.add(total);
    }
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Returns the record of a job that did not end or has no report.
fn failed(script: &Path, error: &anyhow::Error) -> Value {
    json!({ "what": "job", "job": name_of(script), "right": false, "error": format!("{error:#}") })
}
