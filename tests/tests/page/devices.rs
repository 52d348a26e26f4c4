//! Tests of samples of devices: as evidence, over the API, over time, in Prometheus, and on the dashboard.

use anyhow::{Context as _, ensure};
use testkit::browser::Browser;
use testkit::devices::{self, Heartbeats};
use testkit::feed::Feed;
use testkit::programs::{Server, get_bytes, get_json, wait_until};
use testkit::simulator::{FaultKind, Plan, Simulation};
use wire::batch::Note;
use wire::clock::{MonoNanos, ServerNanos};
use wire::device::{DeviceFigure, throttle};
use wire::live::tile::Tile;
use wire::usage::Usage;
use wire::views::{Cause, Culprit};

const SLOW: usize = 2;

/// Simulates a rank that computes 10 ms longer and whose device reports `reasons` and this clock in megahertz.
fn simulated(seed: u64, reasons: u64, clock: u64) -> Simulation {
    let plan =
        Plan { late: 80_000_000, ..Plan::small(seed).with_fault(SLOW, FaultKind::Compute, 10_000_000) };
    devices::sampled(Simulation::run(&plan), SLOW, reasons, clock)
}

#[test]
fn slow_compute_is_a_clock_throttle_only_with_a_lower_clock_and_a_reason() -> anyhow::Result<()> {
    for (reasons, clock, cause) in [
        (throttle::THERMAL, 1_350, Cause::ClockThrottle),
        // A lower clock without a reason occurs between kernels. A reason without a lower clock occurs at the power
        // limit.
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
fn the_error_of_the_device_clock_adds_to_the_error_bound() -> anyhow::Result<()> {
    let bounds = |device: Option<u64>| -> anyhow::Result<Vec<u64>> {
        let mut simulation = simulated(1, 0, 1_980);
        let notes = simulation.batches.iter_mut().flat_map(|received| &mut received.batch.notes);
        for note in notes {
            if let (Note::Device(sample), Some(nanos)) = (note, device) {
                sample.figures.insert(DeviceFigure::ClockErrorBoundNanoseconds, nanos);
            }
        }
        let report = simulation.received().report(usize::MAX, simulation.end());
        report.clocks.iter().map(|clock| clock.bound_nanos.context("a clock is unknown")).collect()
    };
    let (hosts, devices) = (bounds(None)?, bounds(Some(50_000))?);
    ensure!(hosts.len() == 4 && devices == hosts.iter().map(|bound| bound + 50_000).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn the_api_and_prometheus_have_the_newest_sample() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut feed = Feed::new(simulated(1, throttle::THERMAL, 1_350));
    // The job must not end, because completed runs have no gauges.
    feed.send_all_but(1, &server.address)?;
    // Accepted batches are visible some milliseconds later.
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
    ensure!(!metrics.contains("paceline_device_temperature_celsius{"), "an unreported figure has a series");
    Ok(())
}

#[test]
fn a_verdict_of_slow_compute_requests_bursts_from_the_rank_and_from_a_healthy_one() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let simulation = simulated(3, 0, 1_980);
    let mut beats = Heartbeats::new(&simulation);
    let mut feed = Feed::new(simulation);
    feed.send_all_but(1, &server.address)?;
    let mut beat = |rank: usize, notes: Vec<Note>| beats.send(rank, notes, &server.address);
    let asked = wait_until("the slow rank to be asked", || beat(SLOW, Vec::new()).ok()?)?;
    ensure!(beat(0, Vec::new())? == Some(asked), "rank 0 is not asked for the same burst");
    ensure!(beat(1, Vec::new())?.is_none(), "rank 1 is asked as well");
    beat(SLOW, vec![devices::burst(asked, "gemm", 12_000_000)])?;
    beat(0, vec![devices::burst(asked, "gemm", 10_000_000)])?;
    ensure!(beat(SLOW, Vec::new())?.is_none(), "a rank that has answered is asked again");
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
        said == "kernel by kernel, its device takes 20.0 % longer than that of rank 0 (burst of 1.5 s)",
        "{said}"
    );
    Ok(())
}

/// Waits until the Devices view matches `pattern`, and returns its text.
fn shows(browser: &Browser, testid: &str, pattern: &str) -> anyhow::Result<String> {
    let script = format!(
        "const text = document.querySelector('[data-testid={testid}]')?.innerText ?? '';
         return /{pattern}/.test(text) && [text]"
    );
    let text = browser.wait(&format!("{testid} to show {pattern}"), &script)?;
    Ok(text[0].as_str().unwrap_or_default().to_owned())
}

#[test]
fn the_page_shows_devices_and_requests_bursts() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let simulation = simulated(4, throttle::THERMAL, 1_350);
    let mut beats = Heartbeats::new(&simulation);
    let mut feed = Feed::new(simulation);
    feed.send_all_but(1, &server.address)?;
    browser.open(&format!("{}/runs/{}/utilization", server.address, feed.run))?;
    browser.run("window.mark = true")?;
    let told = shows(&browser, "devices", "a GPU at 0000:03:00.0")?;
    ensure!(
        told.contains("1,350 of 1,980 MHz") && told.contains("temperature") && told.contains("97 %"),
        "{told}"
    );
    ensure!(!told.contains("NVLink"), "an unreported figure has a column: {told}");
    shows(&browser, "bursts", "None yet")?;
    browser.click("[data-testid=bursts] button")?;
    shows(&browser, "bursts", "not answered yet: rank 0, 1, 2, 3")?;
    let asked = beats.send(0, Vec::new(), &server.address)?.context("rank 0 is not asked")?;
    // Kernel names come from the user's job and may contain markup.
    let kernel = "gemm<float, 4>(<img src=x onerror='window.harmed = true'>)";
    beats.send(0, vec![devices::burst(asked, kernel, 12_000_000)], &server.address)?;
    let told = shows(&browser, "bursts", "80.0 %")?;
    ensure!(told.contains("not answered yet: rank 1, 2, 3") && told.contains("1.50 s"), "{told}");
    browser.click("[data-testid=bursts] summary")?;
    shows(&browser, "bursts", "gemm<float, 4>[^]*1.20 s")?;
    ensure!(
        browser.run("return [window.mark === true, window.harmed === undefined]")?
            == serde_json::json!([true, true])
    );
    // The list stays unfolded when it is updated.
    beats.send(1, vec![devices::burst(asked, "other", 9_000_000)], &server.address)?;
    shows(&browser, "bursts", "60.0 %[^]*gemm<float, 4>[^]*1.20 s")?;
    let complaints: Vec<_> = browser.console()?.into_iter().filter(|line| line.level == "SEVERE").collect();
    ensure!(complaints.is_empty(), "the console complains: {complaints:#?}");
    // Without a server nothing can be recorded, and the last answers stay.
    server.kill()?;
    browser.text("stale-notice")?;
    let is_disabled = "return document.querySelector('[data-testid=bursts] button').disabled";
    ensure!(browser.run(is_disabled)? == true && browser.text("bursts")?.contains("60.0 %"));
    Ok(())
}

#[test]
fn without_samples_the_page_refers_to_the_doctor() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut feed = Feed::new(Simulation::run(&Plan::small(5)));
    feed.send_all_but(0, &server.address)?;
    browser.open(&format!("{}/runs/{}/utilization", server.address, feed.run))?;
    shows(&browser, "no-usage", "No rank has reported[^]*paceline doctor").map(drop)
}

/// Fetches a measure of devices or hosts over the steps, rank by rank.
fn tile(server: &Server, run: &str, measure: &str) -> anyhow::Result<Tile> {
    let url = format!("{}/api/v1/runs/{run}/heatmap?measure={measure}&reduce=mean", server.address);
    Ok(Tile::decode(&get_bytes(&url)?)?)
}

#[test]
fn measures_over_steps_are_as_drawn_also_after_a_restart_of_the_server() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut feed = Feed::new(simulated(1, throttle::THERMAL, 1_350));
    let run = feed.run.clone();
    feed.send_all_but(0, &server.address)?;
    let is_as_drawn = |server: &Server| -> anyhow::Result<()> {
        let clocks = wait_until("all steps", || {
            tile(server, &run, "sm-clock").ok().filter(|tile| tile.rows == 4 && tile.columns() > 20)
        })?;
        let known = clocks.values.iter().filter(|value| !value.is_nan()).count();
        ensure!(known * 10 > clocks.values.len() * 9, "{known} of {} cells are known", clocks.values.len());
        for (at, &clock) in clocks.values.iter().enumerate().filter(|(_, clock)| !clock.is_nan()) {
            let drawn = if at % 4 == SLOW { 1.35e9 } else { 1.98e9 };
            ensure!(clock == drawn, "rank {}, column {}: {clock}", at % 4, at / 4);
        }
        let throttled = tile(server, &run, "device-throttled")?;
        let ranks = throttled.values.chunks(4).filter(|ranks| ranks.iter().all(|value| !value.is_nan()));
        ensure!(ranks.clone().count() > 0 && ranks.into_iter().all(|ranks| ranks == [0.0, 0.0, 1.0, 0.0]));
        Ok(())
    };
    is_as_drawn(&server)?;
    server.kill()?;
    is_as_drawn(&Server::start(data.path())?)
}

#[test]
fn a_critical_error_of_a_device_is_marked_on_the_time_line() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut simulation = simulated(5, 0, 1_980);
    let rank_1 = simulation.batches.iter_mut().filter(|received| received.batch.rank.0 == 1);
    let notes = rank_1.flat_map(|received| &mut received.batch.notes);
    let samples: Vec<_> =
        notes.filter_map(|note| if let Note::Device(sample) = note { Some(sample) } else { None }).collect();
    let half = samples.len() / 2;
    for sample in samples.into_iter().skip(half) {
        sample.figures.extend([(DeviceFigure::XidErrors, 1), (DeviceFigure::LastXid, 79)]);
    }
    let mut feed = Feed::new(simulation);
    feed.send_all_but(1, &server.address)?;
    browser.open(&format!("{}/runs/{}", server.address, feed.run))?;
    browser.wait("the mark", "return document.body.innerText.includes('rank 1: Xid 79')")?;
    let report = get_json(&format!("{}/api/v1/runs/{}", server.address, feed.run))?;
    let events = report["events"].as_array().context("no events")?;
    ensure!(
        events.len() == 1 && events[0]["kind"]["xid"]["code"] == 79 && events[0]["rank"] == 1,
        "{events:?}"
    );
    Ok(())
}

#[test]
fn a_sample_with_a_broken_time_does_not_hide_later_ones() -> anyhow::Result<()> {
    for broken in [i64::MAX, i64::MAX / 2, i64::MIN] {
        let mut simulation = simulated(1, throttle::THERMAL, 1_350);
        let notes = simulation.batches.iter_mut().flat_map(|received| &mut received.batch.notes);
        let first =
            notes.filter_map(|note| if let Note::Device(sample) = note { Some(sample) } else { None }).next();
        first.context("no sample")?.at = MonoNanos(broken);
        let (run, end) = (simulation.received(), simulation.end());
        for (rank, history) in run.usage(Usage::SmClock).iter().enumerate() {
            let last_second = (ServerNanos(end.0 - 1_000_000_000), end);
            let clock = history.values().value_within(last_second);
            let drawn = if rank == SLOW { 1.35e9 } else { 1.98e9 };
            ensure!(clock == drawn, "rank {rank}, a sample at {broken}: {clock}");
        }
    }
    Ok(())
}

#[test]
fn the_page_answers_whether_devices_are_busy_and_shows_measures_over_steps() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut feed = Feed::new(simulated(4, throttle::THERMAL, 1_350));
    feed.send_all_but(1, &server.address)?;
    browser.open(&format!("{}/runs/{}/utilization", server.address, feed.run))?;
    shows(&browser, "usage-answer", "the devices ran kernels for 97.0 % of the time[^]*compute")?;
    shows(&browser, "strip-sm-clock", "median 1,980 MHz, from 1,350 MHz .rank 2. to 1,980 MHz")?;
    shows(&browser, "strip-device-busy", "97.0 % on all ranks")?;
    // The rank that the verdict names has its measures as lines, below its step time.
    let lines = "const panel = document.querySelector('[data-testid=rank-lines]');
        return panel && panel.innerText.startsWith('Rank 2')
            ? [...panel.querySelectorAll('section[data-testid]')].map((line) => line.dataset.testid) : null";
    let lines = wait_until("the lines of rank 2", || {
        let lines = browser.run(lines).ok()?.as_array()?.clone();
        (lines.len() > 3).then_some(lines)
    })?;
    ensure!(lines[0] == "line-rank-step-time" && lines.contains(&"line-sm-clock".into()), "{lines:?}");
    // The row of the slow rank is darker than the others.
    let rows = "const canvas = document.querySelector('[data-testid=strip-sm-clock] canvas.raster');
        const {width, height} = canvas;
        const row = (rank) => [...canvas.getContext('2d').getImageData(width / 2, (rank + 0.5) * height / 4, 1, 1).data];
        return [0, 1, 2, 3].map((rank) => row(rank)[0])";
    let reds = wait_until("the strip", || {
        let reds = browser.run(rows).ok()?;
        let reds: Vec<u64> = reds.as_array()?.iter().filter_map(serde_json::Value::as_u64).collect();
        (reds.len() == 4 && reds[SLOW] < reds[0]).then_some(reds)
    })?;
    ensure!(reds[0] == reds[1] && reds[0] == reds[3], "{reds:?}");
    // The keys of all views zoom, and the strips follow.
    browser.type_keys("w")?;
    browser.wait("the zoomed steps", "return new URLSearchParams(location.search).get('steps') !== null")?;
    shows(&browser, "strip-sm-clock", "from 1,350 MHz .rank 2.")?;
    // The Overview has the devices' line beside that of computing ranks.
    browser.open(&format!("{}/runs/{}", server.address, feed.run))?;
    browser.wait("the line of devices", "return document.body.innerText.includes('devices run kernels')")?;
    browser.open(&format!("{}/runs/{}/utilization", server.address, feed.run))?;
    shows(&browser, "strip-sm-clock", "from 1,350 MHz .rank 2.")?;
    // A click selects the rank and the step, for all views.
    browser.click("[data-testid=strip-sm-clock] [data-testid=strip]")?;
    browser.wait(
        "the selection",
        "return /rank=[0-3]/.test(location.search) && /step=/.test(location.search)",
    )?;
    Ok(())
}
