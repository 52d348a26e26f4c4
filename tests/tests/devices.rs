//! What devices say of themselves: as evidence, over the API, and to Prometheus.

use anyhow::{Context as _, ensure};
use paceline_tests::feed::Feed;
use paceline_tests::programs::{Server, get_json, wait_until};
use paceline_tests::simulator::{FaultKind, Plan, Simulation};
use wire::batch::{Batch, Note};
use wire::burst::{Activity, Burst, BurstOutcome, BurstRequest, KernelTime};
use wire::clock::MonoNanos;
use wire::device::{DeviceFigure, DeviceSample, throttle};
use wire::ids::BatchSeq;
use wire::views::{Cause, Culprit};

const SLOW: usize = 2;

/// A rank that computes 10 ms longer; every batch of every rank has a look at its device. That of the slow rank says
/// `reasons` and has this clock, in megahertz; all others have 1980.
fn simulated(seed: u64, reasons: u64, clock: u64) -> Simulation {
    let plan =
        Plan { late: 80_000_000, ..Plan::small(seed).with_fault(SLOW, FaultKind::Compute, 10_000_000) };
    let mut simulation = Simulation::run(&plan);
    for received in &mut simulation.batches {
        let batch = &mut received.batch;
        let is_slow = batch.rank.0 as usize == SLOW;
        let (reasons, clock) = if is_slow { (reasons, clock) } else { (0, 1_980) };
        batch.notes.push(Note::Device(DeviceSample {
            at: batch.anchor.mono,
            device: format!("a GPU at 0000:0{}:00.0", batch.rank.0 + 1),
            figures: [
                (DeviceFigure::UtilizationPercent, 97),
                (DeviceFigure::PowerMilliwatts, 512_500),
                (DeviceFigure::SmClockMegahertz, clock),
                (DeviceFigure::SmClockMostMegahertz, 1_980),
                (DeviceFigure::ThrottleReasons, reasons),
            ]
            .into(),
        }));
    }
    simulation
}

#[test]
fn slow_compute_is_a_lowered_clock_only_where_the_device_says_so() -> anyhow::Result<()> {
    for (reasons, clock, cause) in [
        (throttle::THERMAL, 1_350, Cause::ClockThrottle),
        // Lower without a reason, as between kernels; a reason without being lower, as at everybody's power limit.
        (0, 1_350, Cause::Compute),
        (throttle::POWER_CAP, 1_965, Cause::Compute),
    ] {
        for seed in 0..5 {
            let simulation = simulated(seed, reasons, clock);
            let report = simulation.received().report(usize::MAX, simulation.end());
            let first = report.verdicts.first().with_context(|| format!("seed {seed}: no verdict"))?;
            ensure!(first.culprit == Some(Culprit::Rank(SLOW as u32)), "seed {seed}: {first:?}");
            ensure!(first.cause == cause, "seed {seed}, {reasons:#x} at {clock} MHz: {first:?}");
            let says = first.sentence.contains("because its GPU lowered its clock (temperature)");
            ensure!(says == (cause == Cause::ClockThrottle), "seed {seed}: {}", first.sentence);
        }
    }
    Ok(())
}

#[test]
fn the_api_and_prometheus_have_the_newest_look() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut feed = Feed::new(simulated(1, throttle::THERMAL, 1_350));
    // The job goes on: what is over has no gauges.
    feed.send_all_but(1, &server.address)?;
    // What was taken in is shown some milliseconds later.
    let url = format!("{}/api/v1/runs/{}/devices", server.address, feed.run);
    let devices = wait_until("the run with its devices", || {
        get_json(&url).ok()?.as_array().filter(|devices| devices.len() == 4).cloned()
    })?;
    let slow = &devices[SLOW];
    ensure!(slow["rank"] == 2 && slow["sample"]["device"] == "a GPU at 0000:03:00.0", "{slow}");
    ensure!(slow["sample"]["figures"]["sm_clock_megahertz"] == 1_350, "{slow}");
    let metrics = wait_until("metrics of the run", || {
        let mut answer = ureq::get(format!("{}/metrics", server.address)).call().ok()?;
        let text = answer.body_mut().read_to_string().ok()?;
        let has = |rank: u32| text.contains(&format!("paceline_device_throttled{{rank=\"{rank}\""));
        (0..4).all(has).then_some(text)
    })?;
    let run = &feed.run;
    for line in [
        format!("paceline_device_throttled{{rank=\"1\",run=\"{run}\"}} 0"),
        format!("paceline_device_throttled{{rank=\"2\",run=\"{run}\"}} 1"),
        format!("paceline_device_sm_clock_hertz{{rank=\"2\",run=\"{run}\"}} 1350000000"),
        format!("paceline_device_power_watts{{rank=\"0\",run=\"{run}\"}} 512.5"),
        format!("paceline_device_utilization_ratio{{rank=\"3\",run=\"{run}\"}} 0.97"),
    ] {
        ensure!(metrics.contains(&line), "no {line} in:\n{metrics}");
    }
    ensure!(!metrics.contains("paceline_device_temperature_celsius{"), "what no device said has no series");
    Ok(())
}

/// One batch to the server, as an agent sends it; what the server asks for in its answer.
fn post(address: &str, batch: &Batch) -> anyhow::Result<Option<BurstRequest>> {
    let answer = ureq::post(format!("{address}/api/v1/ingest")).send(&wire::codec::encode(batch)?[..])?;
    let header = answer.headers().get(BurstRequest::HEADER);
    Ok(header.and_then(|value| BurstRequest::from_header(value.to_str().ok()?)))
}

/// A second of one kernel, a hundred times.
fn burst(request: BurstRequest, kernel_nanos: u64) -> Note {
    let kernel = KernelTime {
        name: "gemm".into(),
        calls: 100,
        total_nanos: 100 * kernel_nanos,
        longest_nanos: kernel_nanos,
    };
    let activity = Activity {
        records: 100,
        span_nanos: 1_500_000_000,
        compute_nanos: kernel.total_nanos,
        kernels: vec![kernel],
        ..Activity::default()
    };
    let (from, until) = (MonoNanos(0), MonoNanos(1_500_000_000));
    Note::Burst(Burst { request: request.number, from, until, outcome: BurstOutcome::Recorded(activity) })
}

#[test]
fn a_verdict_of_slow_compute_asks_the_rank_and_another_one_what_their_devices_do() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let simulation = simulated(3, 0, 1_980);
    let last_of = |rank: usize| {
        let of_rank = simulation.batches.iter().filter(|received| received.batch.rank.0 as usize == rank);
        of_rank.map(|received| &received.batch).max_by_key(|batch| batch.seq).cloned()
    };
    let lasts: Vec<Batch> = (0..4).filter_map(last_of).collect();
    let mut feed = Feed::new(simulation);
    feed.send_all_but(1, &server.address)?;
    // Heartbeats, with numbers that go on from what was sent.
    let mut beats = 0;
    let mut beat = |rank: usize, notes: Vec<Note>| {
        beats += 1;
        let seq = BatchSeq(lasts[rank].seq.0 + beats);
        let batch = Batch { seq, notes, events: Vec::new(), probes: Vec::new(), ..lasts[rank].clone() };
        post(&server.address, &batch)
    };
    let asked = wait_until("the slow rank to be asked", || beat(SLOW, Vec::new()).ok()?)?;
    ensure!(beat(0, Vec::new())? == Some(asked), "rank 0 is asked the same, to compare with");
    ensure!(beat(1, Vec::new())?.is_none(), "rank 1 has no part in it");
    beat(SLOW, vec![burst(asked, 12_000_000)])?;
    beat(0, vec![burst(asked, 10_000_000)])?;
    ensure!(beat(SLOW, Vec::new())?.is_none(), "who has answered is asked no more");
    let url = format!("{}/api/v1/runs/{}", server.address, feed.run);
    let said = wait_until("the evidence", || {
        let report = get_json(&url).ok()?;
        let evidence = report["verdicts"][0]["evidence"].as_array()?.clone();
        evidence
            .iter()
            .filter_map(|line| line.as_str())
            .find(|line| line.contains("kernel by kernel"))
            .map(str::to_owned)
    })?;
    ensure!(
        said == "kernel by kernel its device takes 20 % longer than rank 0's (a burst of 1.5 s)",
        "{said}"
    );
    Ok(())
}
