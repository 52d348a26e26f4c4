//! Measures many small runs on one real `paceline serve`: `cargo xtask bench runs`.
//!
//! Each run is one rank with four steps of four collectives, sent over HTTP as fast as the server accepts batches. At
//! first all runs are silent, then each sends its end-of-run message, and then the server is killed and restarted.
//! After each phase, the bench measures memory, open files, `/metrics`, and the startup time until `/readyz` answers
//! 200.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};
use testkit::hostile;
use testkit::programs::{Server, get_json, resident_bytes};
use testkit::results::Results;
use wire::batch::Batch;

/// The number of runs, one more than the server accepts.
const RUNS: u64 = 10_001;
const CONNECTIONS: usize = 8;
/// The time after which a server counts as stuck.
const SETTLED_WITHIN: Duration = Duration::from_secs(300);

fn main() -> anyhow::Result<()> {
    let mut results = Results::begin("runs");
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let (took, refused) = send(&server.address, |id| hostile::steps(id, 1, 0, 0..4, 4))?;
    // Batches that are checked at the same time may each find the last slot free.
    ensure!(refused <= 1, "{refused} runs were refused");
    results.add(shown(&server, "silent", took, 0)?);
    let (took, _) = send(&server.address, |id| hostile::goodbye(id, 1, 1))?;
    let until_over = wait_until_over(&server.address)?;
    results.add(shown(&server, "ended", took, until_over)?);
    server.kill()?;
    results.add(restarted(data.path(), "killed")?);
    results.add(restarted(data.path(), "killed again")?);
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Sends one batch of each run. Returns the duration and the number of refused batches.
fn send(address: &str, batch: impl Fn(&str) -> Batch + Sync) -> anyhow::Result<(Duration, u64)> {
    let (next, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let url = format!("{address}/api/v1/ingest");
    let send_some = || -> anyhow::Result<()> {
        let client = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        loop {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= RUNS {
                return Ok(());
            }
            let frame = wire::codec::encode(&batch(&format!("run-{run}")))?;
            loop {
                match client.post(&url).send(&frame[..])?.status().as_u16() {
                    200 => break,
                    503 => std::thread::sleep(Duration::from_millis(200)),
                    _ => {
                        refused.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                }
            }
        }
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(send_some)).collect();
        senders
            .into_iter()
            .try_for_each(|sender| sender.join().map_err(|_| anyhow::anyhow!("a sender panicked"))?)
    })?;
    Ok((began.elapsed(), refused.into_inner()))
}

/// Returns the milliseconds until every run is completed.
fn wait_until_over(address: &str) -> anyhow::Result<u64> {
    let began = Instant::now();
    while began.elapsed() < SETTLED_WITHIN {
        let runs = get_json(&format!("{address}/api/v1/runs"))?;
        let is_completed = |run: &&Value| run["state"] == "completed";
        if runs.as_array().is_some_and(|runs| runs.iter().filter(is_completed).count() as u64 >= RUNS - 1) {
            return Ok(began.elapsed().as_millis() as u64);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    anyhow::bail!("not all runs were completed within {SETTLED_WITHIN:?}")
}

/// Starts a server on the directory, measures its startup, and kills it a minute later.
fn restarted(data: &Path, when: &str) -> anyhow::Result<Value> {
    let began = Instant::now();
    let server = Server::start(data)?;
    while ureq::get(format!("{}/readyz", server.address)).call().is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = began.elapsed();
    let shown = shown(&server, when, took, 0)?;
    // Leaves time to seal logs in the background, so that the next server does not have to.
    std::thread::sleep(Duration::from_secs(60));
    server.kill()?;
    Ok(shown)
}

fn shown(server: &Server, when: &str, took: Duration, until_over: u64) -> anyhow::Result<Value> {
    let asked = Instant::now();
    let mut answer = ureq::get(format!("{}/metrics", server.address)).call()?;
    let metrics = answer.body_mut().with_config().limit(2 << 30).read_to_string()?.len();
    let metrics_millis = asked.elapsed().as_millis() as u64;
    let asked = Instant::now();
    let runs = get_json(&format!("{}/api/v1/runs", server.address))?;
    let line = json!({
        "what": "runs",
        "when": when,
        "runs": runs.as_array().map_or(0, Vec::len),
        "millis": took.as_millis() as u64,
        "until_over_millis": until_over,
        "resident_bytes": resident_bytes(server.pid())?,
        "open_files": std::fs::read_dir(format!("/proc/{}/fd", server.pid()))?.count(),
        "metrics_bytes": metrics,
        "metrics_millis": metrics_millis,
        "list_millis": asked.elapsed().as_millis() as u64,
    });
    println!("{line:#}");
    Ok(line)
}
