//! Checks that a healthy job raises no alerts: a long job under the real Prometheus and Alertmanager with the shipped
//! configuration.
//!
//! Every half minute, the program samples Paceline's view of the job and the pending and firing alerts. At the end, it
//! starts a straggler under the same Prometheus, because silence is meaningful only if an alert would have been
//! delivered.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Parser;
use serde_json::{Value, json};
use testkit::crossover::Crossover;
use testkit::monitoring::{Monitoring, is_installed};
use testkit::programs::{Job, Server, get_json};
use testkit::results::Results;

/// The interval between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(30);
/// The longest time until the alert of a straggler. It usually takes less than half a minute.
const HEARD_WITHIN: Duration = Duration::from_secs(60);

/// Runs a healthy job under Prometheus and Alertmanager, then one with a straggler, and reports the alerts
#[derive(Parser)]
struct Options {
    /// Duration of the healthy job in minutes
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Number of ranks of each job
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..))]
    ranks: u64,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    ensure!(
        is_installed(),
        "Prometheus and Alertmanager are not installed; cargo xtask bench healthy installs them"
    );
    let mut results = Results::begin("healthy");
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let monitoring = Monitoring::start_as_shipped(server.listen())?;
    watch(&server, &monitoring, &options, &mut results)?;
    let control = control(&server, &monitoring, &options)?;
    println!("{control}");
    results.add(control);
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Runs a healthy job for the given number of minutes.
fn watch(
    server: &Server,
    monitoring: &Monitoring,
    options: &Options,
    results: &mut Results,
) -> anyhow::Result<()> {
    let job = job(server, options, &[])?;
    let _crossover = Crossover::new(&job, options.ranks as usize)?;
    let end = Instant::now() + Duration::from_secs(options.minutes * 60);
    while let left = end.saturating_duration_since(Instant::now())
        && !left.is_zero()
    {
        thread::sleep(SAMPLE_EVERY.min(left));
        let seen = sample(server, monitoring)?;
        println!("{seen}");
        results.add(seen);
    }
    let heard: Vec<Value> =
        monitoring.received().into_iter().map(|message| message.alert["labels"].clone()).collect();
    let minutes = options.minutes;
    let raised =
        monitoring.query(&format!("count_over_time(ALERTS{{alertname=~\"Paceline.*\"}}[{minutes}m])"))?;
    let summary = json!({
        "what": "summary", "minutes": minutes, "ranks": options.ranks, "steps": newest(server)?["steps"],
        "alerts_at_the_webhook": heard, "pending_or_firing": raised,
    });
    println!("{summary}");
    results.add(summary);
    Ok(())
}

/// Starts a job that runs until it is dropped and prints almost nothing.
fn job(server: &Server, options: &Options, more: &[&str]) -> anyhow::Result<Job> {
    let ranks = options.ranks.to_string();
    let start = ["-n", &ranks, "--server", &server.address, "--", "char_lm", "--steps", "10000000"];
    Job::start(&[&start[..], &["--log-every", "1000000"], more].concat())
}

/// Returns the newest run from the list of runs.
fn newest(server: &Server) -> anyhow::Result<Value> {
    Ok(get_json(&format!("{}/api/v1/runs", server.address))?[0].clone())
}

fn sample(server: &Server, monitoring: &Monitoring) -> anyhow::Result<Value> {
    let run = newest(server)?;
    let costs = monitoring.query("paceline_straggler_cost_ratio")?;
    let alerts = monitoring.query("ALERTS{alertname=~\"Paceline.*\"}")?;
    let samples = |series: &[Value]| -> Vec<Value> {
        series
            .iter()
            .map(|sample| json!({ "labels": sample["metric"], "value": sample["value"][1] }))
            .collect()
    };
    Ok(json!({
        "what": "look", "steps": run["steps"], "step_time_nanos": run["step_time_nanos"], "verdict": run["verdict"],
        "load": fs::read_to_string("/proc/loadavg")?.split(' ').next(),
        "straggler_cost_ratio": samples(&costs), "alerts": samples(&alerts),
    }))
}

/// Runs the same job with a slow rank, which must raise the alert.
fn control(server: &Server, monitoring: &Monitoring, options: &Options) -> anyhow::Result<Value> {
    let began = Instant::now();
    let slow = ["--slow-rank", "1", "--slow-phase", "input", "--slow-ms", "30"];
    let _job = job(server, options, &slow)?;
    let alert = monitoring.wait_for("straggler", HEARD_WITHIN, |message| {
        message.label("alertname") == "PacelineStragglerSevere" && message.alert["status"] == "firing"
    })?;
    let seconds = alert.at.duration_since(began).as_secs_f64();
    Ok(json!({ "what": "control", "seconds_to_the_webhook": seconds, "labels": alert.alert["labels"] }))
}
