//! Tests of reports over a range of steps.

use anyhow::ensure;
use testkit::feed::Feed;
use testkit::programs::{Server, get_json, wait_until};
use testkit::simulator::{Fault, FaultKind, Plan, Simulation};

/// The first step with the fault.
const FAULTY: u64 = 120;

#[test]
fn a_report_over_a_range_knows_only_the_steps_in_it() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let fault = Fault { rank: 2, kind: FaultKind::Input, nanos: 12_000_000, from: FAULTY, to: 240 };
    let mut feed = Feed::new(Simulation::run(&Plan { steps: 240, faults: vec![fault], ..Plan::small(8) }));
    feed.send_all_but(0, &server.address)?;
    let run = format!("{}/api/v1/runs/{}", server.address, feed.run);
    let report_over = |query: &str| get_json(&format!("{run}{query}"));
    wait_until("the run to complete", || (report_over("").ok()?["state"] == "completed").then_some(()))?;

    let healthy = report_over("?steps=20..110")?;
    ensure!(healthy["step_range"][0] == 20 && healthy["step_range"][1] == 110, "{}", healthy["step_range"]);
    ensure!(healthy["verdicts"].as_array().is_some_and(Vec::is_empty), "{:#}", healthy["verdicts"]);
    let faulty = report_over("?steps=130..230")?;
    ensure!(faulty["verdicts"][0]["culprit"]["rank"] == 2, "{:#}", faulty["verdicts"]);
    let difference =
        (faulty["period_nanos"].as_f64().zip(healthy["period_nanos"].as_f64())).map(|(a, b)| a - b);
    ensure!(difference.is_some_and(|nanos| (8e6..13e6).contains(&nanos)), "{difference:?}");
    Ok(())
}

#[test]
fn a_malformed_or_contradictory_range_is_refused_with_the_reason() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut feed = Feed::new(Simulation::run(&Plan::small(8)));
    feed.send_all_but(0, &server.address)?;
    let run = format!("{}/api/v1/runs/{}", server.address, feed.run);
    wait_until("the run", || get_json(&run).ok())?;
    for (query, reason) in [
        ("steps=9..3", "write A..B"),
        ("steps=all", "write A..B"),
        ("steps=3..9&at=5", "exclude each other"),
        ("window=all&at=5", "exclude each other"),
    ] {
        let mut answer =
            ureq::get(format!("{run}?{query}")).config().http_status_as_error(false).build().call()?;
        let text = answer.body_mut().read_to_string()?;
        ensure!(answer.status() == 400 && text.contains(reason), "{query}: {} {text}", answer.status());
    }
    Ok(())
}
