//! Many small runs on one real `paceline serve`: `cargo xtask bench runs`.
//!
//! Each run is one rank with four steps of four collectives, sent over real HTTP as fast as the server takes them. First
//! they are all silent, then each says goodbye, then the server is killed and started again. What it takes is looked at
//! after each: memory, open files, `/metrics`, and how long the start takes until `/readyz` answers 200.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use paceline_tests::hostile;
use paceline_tests::programs::{Server, get_json, resident_bytes};
use paceline_tests::results::Results;
use serde_json::{Value, json};
use wire::batch::Batch;

/// One more than a server lists.
const RUNS: u64 = 10_001;
const CONNECTIONS: usize = 8;
/// A server that is this far behind is stuck.
const SETTLED_WITHIN: Duration = Duration::from_secs(300);

fn main() -> anyhow::Result<()> {
    let mut results = Results::begin("runs");
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let (took, refused) = send(&server.address, |id| hostile::steps(id, 1, 0, 0..4, 4))?;
    // Batches that are checked at the same time may each find the last place free.
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

/// Sends a batch of each run; how long that took, and how many were refused.
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

/// Milliseconds until every run is over.
fn wait_until_over(address: &str) -> anyhow::Result<u64> {
    let began = Instant::now();
    while began.elapsed() < SETTLED_WITHIN {
        let runs = get_json(&format!("{address}/api/v1/runs"))?;
        let over = |run: &&Value| run["state"] == "completed";
        if runs.as_array().is_some_and(|runs| runs.iter().filter(over).count() as u64 >= RUNS - 1) {
            return Ok(began.elapsed().as_millis() as u64);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    anyhow::bail!("not all runs were over in {SETTLED_WITHIN:?}")
}

/// Kills whatever has the directory, starts a server on it, and says how long that takes.
fn restarted(data: &Path, when: &str) -> anyhow::Result<Value> {
    let began = Instant::now();
    let server = Server::start(data)?;
    while ureq::get(format!("{}/readyz", server.address)).call().is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = began.elapsed();
    let shown = shown(&server, when, took, 0)?;
    // What is sealed in the background is sealed when the next one starts.
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
