//! Does a healthy job wake anyone? A long one under the real Prometheus and Alertmanager, everything as shipped.
//!
//! Every half minute it is asked what Paceline says of the job and which alerts are pending or firing. At the end a
//! straggler is started under the same Prometheus: silence counts only where an alert would have been heard.
#![allow(clippy::print_stdout, reason = "what the program is for")]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use paceline_tests::crossover::Crossover;
use paceline_tests::monitoring::{Monitoring, is_installed};
use paceline_tests::programs::{Job, Server, get_json};
use paceline_tests::results::Results;
use serde_json::{Value, json};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(30);
/// A straggler is heard of within half a minute; more than that is a failure.
const HEARD_WITHIN: Duration = Duration::from_secs(60);
const USAGE: &str = "usage: healthy [--minutes 60] [--ranks 4]";

struct Options {
    minutes: u64,
    ranks: u64,
}

fn main() -> anyhow::Result<()> {
    let options = options()?;
    ensure!(
        is_installed(),
        "Prometheus and Alertmanager are needed: cargo xtask bench healthy installs them"
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

/// A healthy job for so many minutes.
fn watch(
    server: &Server,
    monitoring: &Monitoring,
    options: &Options,
    results: &mut Results,
) -> anyhow::Result<()> {
    let job = job(server, options, &[])?;
    let _crossover = Crossover::of(&job, options.ranks as usize)?;
    let end = Instant::now() + Duration::from_secs(options.minutes * 60);
    while let left = end.saturating_duration_since(Instant::now())
        && !left.is_zero()
    {
        thread::sleep(LOOK.min(left));
        let seen = look(server, monitoring)?;
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

fn options() -> anyhow::Result<Options> {
    let mut options = Options { minutes: 60, ranks: 4 };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let number = words.next().and_then(|number| number.parse().ok());
        match (name.as_str(), number) {
            ("--minutes", Some(number @ 1..)) => options.minutes = number,
            ("--ranks", Some(number @ 2..)) => options.ranks = number,
            _ => bail!(USAGE),
        }
    }
    Ok(options)
}

/// A job that goes on until it is dropped, and prints next to nothing meanwhile.
fn job(server: &Server, options: &Options, more: &[&str]) -> anyhow::Result<Job> {
    let ranks = options.ranks.to_string();
    let start = ["-n", &ranks, "--server", &server.address, "--", "char_lm", "--steps", "10000000"];
    Job::start(&[&start[..], &["--log-every", "1000000"], more].concat())
}

/// The newest run as the list of runs has it.
fn newest(server: &Server) -> anyhow::Result<Value> {
    Ok(get_json(&format!("{}/api/v1/runs", server.address))?[0].clone())
}

fn look(server: &Server, monitoring: &Monitoring) -> anyhow::Result<Value> {
    let run = newest(server)?;
    let costs = monitoring.query("paceline_straggler_cost_ratio")?;
    let alerts = monitoring.query("ALERTS{alertname=~\"Paceline.*\"}")?;
    let of = |series: &[Value]| -> Vec<Value> {
        series.iter().map(|one| json!({ "labels": one["metric"], "value": one["value"][1] })).collect()
    };
    Ok(json!({
        "what": "look", "steps": run["steps"], "step_time_ns": run["step_time_nanos"], "verdict": run["verdict"],
        "load": fs::read_to_string("/proc/loadavg")?.split(' ').next(),
        "straggler_cost_ratio": of(&costs), "alerts": of(&alerts),
    }))
}

/// The same job with a rank that is slow: the alert must come.
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
