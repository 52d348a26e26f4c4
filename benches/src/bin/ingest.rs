//! Measures ingest over HTTP into a real `paceline serve`: `cargo xtask bench ingest`.
//!
//! Every rank sends one batch per step, with 40 collectives, seven phases and the end of the step. Eight persistent
//! connections send as fast as the server accepts batches. *Durable* ends with the last answer, *analyzed* when every
//! step is analyzed. The times in the records are invented; the program, the disk and the connections are real.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::json;
use testkit::hostile;
use testkit::programs::{Server, get_json};
use testkit::results::Results;
use wire::batch::Batch;
use wire::clock::MonoNanos;
use wire::event::{Event, Span, SpanKind};
use wire::ids::{Rank, Step};

const BUCKETS: u32 = 40;
const PHASES: u64 = 7;
const CONNECTIONS: usize = 8;
/// The numbers of ranks, with the number of steps that each rank sends: thousands to tens of thousands of batches.
const SIZES: [(u32, u64); 3] = [(8, 1_000), (1_024, 16), (16_384, 2)];
/// The time after which a server that has not analyzed all steps counts as unable to keep up.
const ANALYZED_WITHIN: Duration = Duration::from_secs(120);

fn main() -> anyhow::Result<()> {
    let mut results = Results::begin("ingest");
    for (ranks, steps) in SIZES {
        let measured = measure(ranks, steps)?;
        println!("{measured:#}");
        results.add(measured);
    }
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

fn measure(ranks: u32, steps: u64) -> anyhow::Result<serde_json::Value> {
    let (data, cpu_before) = (tempfile::tempdir()?, children_cpu_seconds()?);
    let server = Server::start(data.path())?;
    let records = (u64::from(BUCKETS) + PHASES + 1) * u64::from(ranks) * steps;
    let began = Instant::now();
    let Sent { mut answers, deferred } = send(&server.address, ranks, steps)?;
    let durable = began.elapsed();
    let analyzed = wait_until_analyzed(&server.address, steps, began);
    answers.sort();
    let quantile = |share: f64| answers[((answers.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let rate = |took: Duration| (records as f64 / took.as_secs_f64()).round();
    let peak_resident_bytes = peak_resident_bytes(server.pid())?;
    server.kill()?;
    Ok(json!({
        "what": "ingest",
        "ranks": ranks,
        "steps": steps,
        "batches": u64::from(ranks) * steps,
        "records": records,
        "deferred": deferred,
        "durable_seconds": durable.as_secs_f64(),
        "durable_records_per_second": rate(durable),
        "analyzed_records_per_second": analyzed.map(rate),
        "answer_millis": { "p50": quantile(0.5), "p99": quantile(0.99), "max": quantile(1.0) },
        "server_cpu_seconds": children_cpu_seconds()? - cpu_before,
        "server_peak_resident_bytes": peak_resident_bytes,
        "load_after": std::fs::read_to_string("/proc/loadavg")?.trim(),
    }))
}

/// The duration of each answer, and the number of answers that deferred a batch.
#[derive(Default)]
struct Sent {
    answers: Vec<Duration>,
    deferred: u32,
}

/// Sends all steps of all ranks. Connections wait for each other at the end of each step, as ranks do.
fn send(address: &str, ranks: u32, steps: u64) -> anyhow::Result<Sent> {
    let (url, together) = (format!("{address}/api/v1/ingest"), Barrier::new(CONNECTIONS));
    let send_share = |connection: usize| {
        let client = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let (mut sent, mut failed) = (Sent::default(), None);
        for step in 0..steps {
            let share = (0..ranks).skip(connection).step_by(CONNECTIONS);
            // A failed connection still waits for the others, which would otherwise wait for it forever.
            let work = || {
                share
                    .map(Rank)
                    .try_for_each(|rank| deliver(&client, &url, &batch(rank, ranks, step), &mut sent))
            };
            failed = failed.or_else(|| work().err());
            together.wait();
        }
        failed.map_or(Ok(sent), Err)
    };
    std::thread::scope(|scope| {
        let share = &send_share;
        let senders: Vec<_> = (0..CONNECTIONS).map(|at| scope.spawn(move || share(at))).collect();
        let mut all = Sent::default();
        for sender in senders {
            let sent = sender.join().map_err(|_| anyhow::anyhow!("a sender panicked"))??;
            all.answers.extend(sent.answers);
            all.deferred += sent.deferred;
        }
        Ok(all)
    })
}

/// Sends one batch until it is durable.
fn deliver(client: &ureq::Agent, url: &str, batch: &Batch, sent: &mut Sent) -> anyhow::Result<()> {
    let frame = wire::codec::encode(batch)?;
    loop {
        let began = Instant::now();
        let mut answer = client.post(url).send(&frame[..])?;
        sent.answers.push(began.elapsed());
        // The answer must be read to its end, or the connection cannot be reused.
        let text = answer.body_mut().read_to_string()?;
        match answer.status().as_u16() {
            200 => return Ok(()),
            503 => sent.deferred += 1,
            status => bail!("the server answered {status}: {text}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn batch(rank: Rank, ranks: u32, step: u64) -> Batch {
    let mut batch = hostile::steps("ingest", ranks, step, step..step + 1, BUCKETS);
    batch.rank = rank;
    let phase = |at: u64| {
        let begin = MonoNanos((step * 1_000 + at * 10) as i64);
        let kind = SpanKind::ALL[at as usize % SpanKind::ALL.len()];
        Event::Span(Span { step: Step(step), kind, begin, end: MonoNanos(begin.0 + 9), cpu_nanos: 9 })
    };
    batch.events.splice(0..0, (0..PHASES).map(phase));
    batch
}

/// Returns the time from the first batch until every step is analyzed, or `None` if that takes too long.
fn wait_until_analyzed(address: &str, steps: u64, began: Instant) -> Option<Duration> {
    let deadline = Instant::now() + ANALYZED_WITHIN;
    while Instant::now() < deadline {
        let run = get_json(&format!("{address}/api/v1/runs/ingest/summary")).ok();
        if run.is_some_and(|run| run["steps"] == steps) {
            return Some(began.elapsed());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

fn peak_resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("VmHWM is missing")?;
    Ok(line.split_whitespace().nth(1).context("VmHWM has no number")?.parse::<u64>()? * 1024)
}

/// Returns the user and system time of all servers that have ended.
fn children_cpu_seconds() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 * 1e-6)
}
