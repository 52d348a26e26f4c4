//! Tests of bursts on the fake GPU in real time: a server requests a burst, a rank records every kernel of its device
//! for a moment, and reports the result.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::fake_gpu;
use testkit::programs::{Running, Server, get_json, judged, paceline, program, wait_until};

/// Starts an unmodified job on a machine with these libraries, and waits until the server has its steps.
fn start(server: &Server, libraries: &std::path::Path) -> anyhow::Result<Running> {
    start_with(server, libraries, &[])
}

/// Starts a job like [`start`], with additional environment variables.
fn start_with(
    server: &Server,
    libraries: &std::path::Path,
    variables: &[(&str, &str)],
) -> anyhow::Result<Running> {
    let child = Command::new(program("paceline"))
        .args(["run", "--attach", "-n", "1", "--server", &server.address, "--"])
        .arg(program("old_nccl_job"))
        .args(["--steps", "100000"])
        .env("LD_LIBRARY_PATH", libraries)
        .env("FAKEGPU_REAL_TIME", "1")
        .env("FAKEGPU_NCCL_VERSION", "22005")
        .env_remove("VIRTUAL_ENV")
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .spawn()?;
    let job = Running(child);
    let steps = format!("{}/api/v1/runs", server.address);
    wait_until("the first steps", || {
        get_json(&steps).ok()?[0]["last_step"].as_u64().filter(|step| *step > 0)
    })?;
    Ok(job)
}

#[test]
fn a_requested_burst_reports_the_device_activity() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let libraries = fake_gpu::installed_as(&["libcuda.so.1", "libnccl.so.2", "libcupti.so.13"])?;
    let job = start(&server, libraries.path())?;
    let burst = ["burst", "latest", "--server", &server.address, "--millis", "500"];
    let output = paceline(&[&burst[..], &["--json"]].concat())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let outcome = &found[0]["burst"]["outcome"];
    ensure!(outcome["result"] == "recorded" && found[0]["rank"] == 0, "{found}");
    // A step has 9 ms of compute, 0.859 ms of hidden collectives and 0.230 ms of exposed ones.
    let nanos = |name: &str| outcome[name].as_f64().unwrap_or(f64::NAN);
    let overlap = nanos("hidden_nanos") / nanos("collective_nanos");
    ensure!((0.76..0.82).contains(&overlap), "overlap {overlap}: {outcome}");
    let compute = nanos("compute_nanos") / nanos("span_nanos");
    ensure!((0.7..0.99).contains(&compute), "compute {compute}: {outcome}");
    ensure!((400e6..600e6).contains(&nanos("span_nanos")), "{outcome}");
    let kernels: Vec<&str> = outcome["kernels"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|kernel| kernel["name"].as_str())
        .collect();
    ensure!(kernels == ["spin_ns", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"], "{kernels:?}");
    let longest = outcome["kernels"][0]["longest_nanos"].as_u64();
    ensure!(longest == Some(6_000_000), "the longest kernel does not take 6 ms: {outcome}");
    // The second burst prints text for users. A server that remembers the first answer must not mistake it for the
    // second.
    let output = paceline(&[&burst[..], &["--rank", "0"]].concat())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(said.starts_with("Rank 0: ") && said.contains("% of it hidden by kernels"), "{said}");
    let runs = format!("{}/api/v1/runs", server.address);
    let id = get_json(&runs)?[0]["run"].as_str().unwrap_or_default().to_owned();
    let newest = get_json(&format!("{runs}/{id}/bursts"))?;
    ensure!(newest[0]["burst"]["request"].as_u64() > found[0]["burst"]["request"].as_u64(), "{newest}");
    drop(job);
    Ok(())
}

#[test]
fn a_job_can_record_every_nth_step() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let libraries = fake_gpu::installed_as(&["libcuda.so.1", "libnccl.so.2", "libcupti.so.13"])?;
    let _job = start_with(&server, libraries.path(), &[("PACELINE_BURST_EVERY", "50 steps")])?;
    let runs = format!("{}/api/v1/runs", server.address);
    let id = get_json(&runs)?[0]["run"].as_str().unwrap_or_default().to_owned();
    let burst = wait_until("a burst without a request", || {
        let newest = get_json(&format!("{runs}/{id}/bursts")).ok()?[0]["burst"].clone();
        newest["outcome"].is_object().then_some(newest)
    })?;
    ensure!(burst["request"] == 0 && burst["outcome"]["result"] == "recorded", "{burst}");
    // A step takes slightly more than 9.2 ms. The burst is a tenth longer, and has both kernels and both collectives of
    // the step.
    let lasted =
        burst["until"].as_i64().zip(burst["from"].as_i64()).map(|(until, from)| (until - from) as f64 / 1e6);
    ensure!(lasted.is_some_and(|lasted| (10.0..200.0).contains(&lasted)), "{lasted:?} ms: {burst}");
    ensure!(burst["outcome"]["kernels"].as_array().is_some_and(|kernels| kernels.len() == 2), "{burst}");
    Ok(())
}

#[test]
fn a_rank_without_cupti_gives_a_reason_and_invalid_requests_are_refused() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let libraries = fake_gpu::installed_as(&["libcuda.so.1", "libnccl.so.2"])?;
    let _job = start(&server, libraries.path())?;
    let burst = |more: &[&str]| paceline(&[&["burst", "--server", &server.address], more].concat());
    let output = burst(&[])?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(said.starts_with("Rank 0: nothing recorded: ") && said.contains("CUPTI"), "{said}");
    // A file that is not a library does not harm the job either.
    std::fs::write(libraries.path().join("libcupti.so.13"), "no library at all")?;
    let said = String::from_utf8_lossy(&burst(&[])?.stdout).into_owned();
    ensure!(said.contains("CUPTI cannot be opened: ") && said.contains("libcupti.so.13"), "{said}");
    let last_step = || get_json(&format!("{}/api/v1/runs", server.address)).ok()?[0]["last_step"].as_u64();
    let last_before = last_step();
    wait_until("the job to continue", || (last_step() > last_before).then_some(()))?;
    for (more, complaint) in [
        (&["--rank", "7"][..], "the run has no rank 7"),
        (&["no-such-run"], "there is no run"),
        (&["--millis", "9000"], "9000 is not in 1..=5000"),
    ] {
        let output = burst(more)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && said.contains(complaint), "{more:?}: {said}");
    }
    let runs = format!("{}/api/v1/runs", server.address);
    let id = get_json(&runs)?[0]["run"].as_str().unwrap_or_default().to_owned();
    let answer = ureq::post(format!("{runs}/{id}/bursts?millis=0")).send_empty();
    ensure!(matches!(answer, Err(ureq::Error::StatusCode(400))), "a burst of 0 ms was accepted: {answer:?}");
    Ok(())
}

/// The backward time before each bucket of `staged_job`, in nanoseconds.
const BACKWARD_NANOS: i64 = 8_000_000;

/// The nanoseconds of the collectives that ran during a burst, from the rows of an export.
#[derive(Debug, Default)]
struct ByEvents {
    all: i64,
    hidden: i64,
    /// The time in which the device waited for the host within backward, so that its second bucket was late. Events
    /// count this time as compute.
    gaps: i64,
}

impl ByEvents {
    fn new(rows: &str, burst: &Value) -> anyhow::Result<Self> {
        // The rank has the clock of this machine.
        let anchor = agent::clock::anchor();
        let unix = |field: &str| burst[field].as_i64().map(|mono| mono - anchor.mono.0 + anchor.unix.0);
        let (from, until) = unix("from").zip(unix("until")).context("the burst has no times")?;
        let mut lines = rows.lines();
        let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let column =
            |name: &str| head.iter().position(|column| *column == name).context("the export lacks a column");
        let [step, ready, start, end, hidden] =
            ["step", "ready_unix_ns", "start_unix_ns", "end_unix_ns", "hidden_ns"].map(column);
        let (step, ready, start, end, hidden) = (step?, ready?, start?, end?, hidden?);
        let (mut found, mut last) = (Self::default(), None);
        for line in lines {
            let cells: Vec<i64> = line.split(',').map(|cell| cell.parse().unwrap_or(0)).collect();
            let previous = last.replace((cells[step], cells[ready]));
            if from <= cells[start] && cells[end] <= until {
                found.all += cells[end] - cells[start];
                found.hidden += cells[hidden];
                let first = previous.filter(|(step_before, _)| *step_before == cells[step]);
                found.gaps += first.map_or(0, |(_, ready_first)| cells[ready] - ready_first - BACKWARD_NANOS);
            }
        }
        Ok(found)
    }
}

#[test]
fn a_burst_and_events_agree_on_collectives_in_host_memory() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let libraries = fake_gpu::installed_as(&["libcuda.so.1", "libcupti.so.13"])?;
    let job = Command::new(program("paceline"))
        .args(["run", "-n", "1", "--server", &server.address, "--"])
        .arg(program("staged_job"))
        .arg("100000")
        .env("LD_LIBRARY_PATH", libraries.path())
        .env("FAKEGPU_REAL_TIME", "1")
        .stdout(Stdio::null())
        .spawn()
        .map(Running)?;
    let runs = format!("{}/api/v1/runs", server.address);
    wait_until("the first 50 steps", || {
        get_json(&runs).ok()?[0]["last_step"].as_u64().filter(|step| *step > 50)
    })?;
    let output = paceline(&["burst", "latest", "--server", &server.address, "--millis", "5000", "--json"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let run = get_json(&runs)?[0].clone();
    let last = run["last_step"].as_u64().unwrap_or_default();
    let url = format!("{runs}/{}/export?format=csv&steps=0..{last}", run["run"].as_str().unwrap_or_default());
    let rows = ureq::get(url).call()?.body_mut().read_to_string()?;
    let by_events = ByEvents::new(&rows, &found[0]["burst"])?;
    let shares = judged_shares(&output.stdout, &server.address)?;
    drop(job);
    let outcome = &found[0]["burst"]["outcome"];
    let nanos = |name: &str| outcome[name].as_f64().unwrap_or(f64::NAN);
    // A step has the backward of two buckets and one optimizer. The launching thread determines the phase of each
    // kernel.
    let kernels = outcome["kernels"].as_array().cloned().unwrap_or_default();
    let launched = |name: &str, phase: &str| {
        let found = kernels.iter().find(|kernel| kernel["name"] == name && kernel["phase"] == phase);
        found.and_then(|kernel| kernel["calls"].as_f64()).unwrap_or(f64::NAN)
    };
    let (backward, optimizer) = (launched("spin_ns", "backward"), launched("spin_ns", "optimizer"));
    ensure!((1.9..2.1).contains(&(backward / optimizer)), "{outcome}");
    ensure!((0.95..1.05).contains(&(launched("scale", "backward") / backward)), "{outcome}");
    let by_cupti = nanos("hidden_nanos") / nanos("collective_nanos");
    // CUPTI counts nothing as hidden in a gap. The part of each gap that a collective filled is not known.
    let overlap = |hidden: i64| hidden as f64 / by_events.all as f64;
    let (least, most) = (overlap(by_events.hidden - by_events.gaps), overlap(by_events.hidden));
    ensure!((0.1..0.9).contains(&most), "expected partly hidden collectives: {by_events:?}");
    ensure!((least - 0.01..most + 0.01).contains(&by_cupti), "{by_cupti} by CUPTI, {by_events:?}: {outcome}");
    // Short gaps of a computing stream count as busy.
    let busy = nanos("covered_nanos") / nanos("collective_nanos");
    ensure!((by_cupti..most + 0.01).contains(&busy), "{busy}, {by_cupti} by CUPTI, {by_events:?}: {outcome}");
    let [events, with_gaps, strict] = shares;
    ensure!((events - most).abs() < 0.001, "the judging program has {events} by events, expected {most}");
    ensure!((with_gaps - busy).abs() < 0.001 && (strict - by_cupti).abs() < 0.001, "{shares:?}, {outcome}");
    Ok(())
}

/// Returns the figures of the program that judges bursts on a GPU: overlap by events, with gaps, and by kernels alone.
fn judged_shares(bursts: &[u8], server: &str) -> anyhow::Result<[f64; 3]> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), bursts)?;
    let said = judged("overlap.py", &[&file.path().to_string_lossy(), server, "1"])?;
    let shares = said.split_whitespace().filter_map(|word| word.strip_suffix('%')?.parse::<f64>().ok());
    let shares: Vec<f64> = shares.map(|percent| percent / 100.0).collect();
    <[f64; 3]>::try_from(shares).map_err(|_| anyhow::anyhow!(said))
}

#[test]
fn without_a_server_the_command_explains_the_server_option() -> anyhow::Result<()> {
    let output = paceline(&["burst", "--server", "http://127.0.0.1:9"])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && said.contains("--server URL"), "{said}");
    Ok(())
}
