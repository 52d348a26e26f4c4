//! Planted faults in real training jobs: is the right rank named, with the right cause, at what cost?
//!
//! Every cause on every rank of four, one run each, and as many healthy runs. A fault burns a known time of the
//! rank's processor in every step; what it costs the job depends on what else the machine does, so the load
//! before each run is kept beside the result.
#![allow(clippy::print_stdout, reason = "what the program is for")]

use std::path::Path;

use anyhow::ensure;
use paceline_tests::programs::{Job, report};
use paceline_tests::results::Results;
use serde_json::{Value, json};

const RANKS: u32 = 4;
const STEPS: &str = "300";
const MILLIS: f64 = 30.0;
const CAUSES: [&str; 3] = ["input", "compute", "host"];

fn main() -> anyhow::Result<()> {
    let mut results = Results::begin("faults");
    let data = tempfile::tempdir()?;
    let mut right = 0;
    let mut errors: Vec<f64> = Vec::new();
    println!("planted {MILLIS} ms on one of {RANKS} ranks, {STEPS} steps each");
    println!("{:8} {:>4}   {:24} {:>8} {:>8}", "cause", "rank", "first verdict", "cost", "error");
    for cause in CAUSES {
        for rank in 0..RANKS {
            let outcome = faulty(data.path(), rank, cause)?;
            right += u32::from(outcome["right"] == true);
            errors.push(outcome["cost_error"].as_f64().unwrap_or(f64::INFINITY).abs());
            results.add(outcome);
        }
    }
    let mut alarms = 0;
    for _ in 0..CAUSES.len() as u32 * RANKS {
        let outcome = healthy(data.path())?;
        alarms += u32::from(outcome["false_alarm"] == true);
        results.add(outcome);
    }
    errors.sort_by(f64::total_cmp);
    let within = errors.iter().filter(|error| **error <= 0.2).count();
    let runs = errors.len();
    println!(
        "right rank and cause in {right} of {runs}, cost within 20 % in {within}, false alarms {alarms} of {runs}"
    );
    results.add(json!({
        "kind": "summary", "runs": runs, "right": right, "cost_within_20_percent": within,
        "median_cost_error": errors[runs / 2], "worst_cost_error": errors[runs - 1], "false_alarms": alarms,
    }));
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

fn train(data: &Path, more: &[&str]) -> anyhow::Result<Value> {
    let (data_text, ranks) = (data.to_string_lossy(), RANKS.to_string());
    let mut arguments = vec!["-n", &ranks, "--data", &data_text, "--", "char_lm", "--steps", STEPS];
    arguments.extend(more);
    let (code, printed, complaints) = Job::start(&arguments)?.finish()?;
    ensure!(code == 0, "the job failed: {printed}{complaints}");
    report(data, "latest")
}

fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

fn faulty(data: &Path, rank: u32, cause: &str) -> anyhow::Result<Value> {
    let (load, rank_text, millis) = (load(), rank.to_string(), MILLIS.to_string());
    let report = train(data, &["--slow-rank", &rank_text, "--slow-phase", cause, "--slow-ms", &millis])?;
    let first = &report["verdicts"][0];
    let right = first["culprit"] == json!({ "rank": rank }) && first["cause"] == cause;
    let cost = first["cost_ns_per_step"].as_f64().unwrap_or(0.0) / 1e6;
    let error = cost / MILLIS - 1.0;
    let named = format!("{} {}", first["culprit"], first["cause"].as_str().unwrap_or("nothing"));
    println!("{cause:8} {rank:>4}   {named:24} {cost:>5.1} ms {:>6.0} %", error * 100.0);
    Ok(json!({
        "kind": "fault", "rank": rank, "cause": cause, "planted_ms": MILLIS, "load_before": load, "right": right,
        "cost_ms": cost, "cost_error": error, "confidence": first["confidence"],
        "step_ms": report["step_time_ns"]["median"].as_f64().map(|nanos| nanos / 1e6),
    }))
}

fn healthy(data: &Path) -> anyhow::Result<Value> {
    let load = load();
    let report = train(data, &[])?;
    let verdicts = report["verdicts"].as_array().cloned().unwrap_or_default();
    let against: Vec<&Value> =
        verdicts.iter().filter(|verdict| verdict["culprit"].get("rank").is_some()).collect();
    println!("healthy        {} verdicts against a rank", against.len());
    Ok(json!({
        "kind": "healthy", "load_before": load, "false_alarm": !against.is_empty(), "against": against,
        "step_ms": report["step_time_ns"]["median"].as_f64().map(|nanos| nanos / 1e6),
    }))
}
