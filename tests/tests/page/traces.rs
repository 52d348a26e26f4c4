//! Tests of the traces in the Code view.

use std::io::Write as _;
use std::path::Path;

use anyhow::ensure;
use flate2::Compression;
use flate2::write::GzEncoder;
use paceline::store::captures::{Asked, Captures};
use paceline::store::directory::Layout;
use serde_json::{Value, json};
use testkit::browser::Browser;
use testkit::feed::Feed;
use testkit::programs::Server;
use testkit::simulator::{Plan, Simulation};
use wire::ids::{Rank, RunId, Step};
use wire::views::captures::StoredTrace;

/// The name of an operator. It comes from the user's job, and may contain markup.
const SLOW: &str = "mine::slow<img src=x onerror='window.harmed = true'>";

/// Returns a trace of one step of 1 ms. One operator takes `micros` microseconds of it.
fn trace(micros: u32) -> std::io::Result<Vec<u8>> {
    let event = |cat: &str, name: &str, ts: u32, dur: u32| json!({ "ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur });
    let events = [event("user_annotation", "ProfilerStep#700", 10, 1_000), event("cpu_op", SLOW, 20, micros)];
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(json!({ "traceEvents": events }).to_string().as_bytes())?;
    packed.finish()
}

/// Stores a capture in which ranks 2 and 0 sent a trace, and rank 1 refused.
fn store(data: &Path, run: &str) -> anyhow::Result<()> {
    let captures = Captures::new(Layout::new(data).folder(&RunId::new(run)?));
    let ranks = vec![Rank(2), Rank(0), Rank(1)];
    captures.begin(&Asked { id: 1_000, first_step: Step(699), steps: 1, automatic: true, ranks })?;
    for (rank, micros, first) in [(2, 900, 700), (0, 100, 699)] {
        let mut incoming = captures.receive(1_000, Rank(rank), 1)?;
        incoming.add(&trace(micros)?)?;
        let told =
            StoredTrace { first_step: Step(first), steps: 1, pause_nanos: 4_000_000, bytes: 0, crc32: 0 };
        incoming.finish(1_000, Rank(rank), told)?;
    }
    Ok(captures.refuse(1_000, Rank(1), "the job's own profiler is active".into())?)
}

#[test]
fn traces_are_listed_and_what_differs_comes_first() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut feed = Feed::new(Simulation::run(&Plan::small(8)));
    feed.send_all_but(1, &server.address)?;
    browser.open(&format!("{}/runs/{}/code", server.address, feed.run))?;
    browser
        .wait("that there are none", "return document.querySelector('[data-testid=traces-none]') !== null")?;
    browser.click("[data-testid=trace]")?;
    let refused =
        "return /has reported PyTorch/.test(document.querySelector('[data-testid=traces] .error').innerText)";
    browser.wait("why a simulated run is not traced", refused)?;

    store(data.path(), &feed.run)?;
    let first = "return document.querySelector('[data-testid=traces-table] tbody tr:not(.spacer)')?.innerText ?? false";
    let first = browser.wait("the table", first)?;
    let first = first.as_str().unwrap_or_default();
    ensure!(first.contains(SLOW) && first.contains("+800 µs") && first.contains("operator"), "{first}");
    let listed = browser.text("capture")?;
    for part in [
        "Asked for step 699, because of a verdict",
        "Rank 2: step 700 (it was beyond the first one asked for)",
        "it paused the training for 4.00 ms",
        "Rank 1: no trace: the job's own profiler is active",
    ] {
        ensure!(listed.contains(part), "{part}: {listed}");
    }
    let summary = browser.text("traces-summary")?;
    ensure!(summary.contains("Outside of operators: 100 µs and 900 µs"), "{summary}");
    let href = "return document.querySelector('[data-testid=capture] a').href";
    let href = browser.run(href)?;
    ensure!(href.as_str().is_some_and(|href| href.ends_with("/captures/1000/ranks/2")), "{href}");
    ensure!(browser.run("return window.harmed === undefined")? == Value::Bool(true));
    // Narrow, nothing is wider than the page.
    browser.viewport(400, 800)?;
    let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
    browser.wait("the page to fit", fits)?;
    let port = server.listen().to_owned();
    server.kill()?;
    browser.wait(
        "the button without a server",
        "return document.querySelector('[data-testid=trace]').disabled",
    )?;
    ensure!(browser.text("capture")?.contains("Rank 2"), "the list stays while {port} is unreachable");
    Ok(())
}
