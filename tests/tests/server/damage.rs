//! Tests of damage on disk. Damaged files are named, everything else is served, and nothing is refused or lost
//! silently.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use paceline::store::directory::Layout;
use paceline::store::folder::RunFolder;
use paceline::store::segment::Received;
use testkit::programs::{Server, gap, get_json, paceline, program, report, said, wait_until};
use testkit::stored::{one_step, one_step_and_goodbye, store};
use wire::batch::Batch;
use wire::clock::ServerNanos;
use wire::ids::{Incarnation, RunId};

fn folder(data: &Path, run: &RunId) -> RunFolder {
    Layout::new(data).folder(run)
}

/// Waits until the logs of a run that has ended are sealed.
fn wait_until_sealed(data: &Path, run: &RunId) -> anyhow::Result<()> {
    let folder = folder(data, run);
    wait_until("the run to be sealed", || {
        (folder.path.join("manifest.json").exists() && folder.logs().ok()?.is_empty()).then_some(())
    })
}

/// Tests a server that was killed with logs of completed runs. The next server serves these runs at once and seals
/// their logs.
#[test]
fn logs_of_a_killed_server_are_sealed_while_the_next_server_serves() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let runs: Vec<RunId> = (0..20).map(|run| RunId::new(format!("r{run}"))).collect::<Result<_, _>>()?;
    for run in &runs {
        let batches = [one_step(run, 0), one_step(run, 1), one_step_and_goodbye(run, 2)];
        let received = |batch| Received { at: ServerNanos(0), batch };
        store(data.path(), &batches.map(received))?;
    }
    let server = Server::start(data.path())?;
    assert_eq!(served(&server)?.len(), runs.len());
    for run in &runs {
        wait_until_sealed(data.path(), run)?;
    }
    assert_eq!(get_json(&format!("{}/api/v1/runs/r7", server.address))?["state"], "completed");
    Ok(())
}

fn flip_in_the_middle(path: &Path) -> anyhow::Result<()> {
    let mut bytes = std::fs::read(path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    Ok(std::fs::write(path, bytes)?)
}

fn runs(data: &Path) -> anyhow::Result<String> {
    Ok(said(&paceline(&["runs", "--data", &data.to_string_lossy()])?).0)
}

#[test]
fn a_run_has_all_its_steps_although_its_server_was_killed_twice() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    for first in [0, 50, 100] {
        let server = Server::start(data.path())?;
        server.send((first..first + 49).map(|seq| one_step(&run, seq)))?;
        if first < 100 {
            server.send([one_step(&run, first + 49)])?;
        } else {
            server.send([one_step_and_goodbye(&run, 149)])?;
            wait_until_sealed(data.path(), &run)?;
        }
        server.kill()?;
    }
    let report = report(data.path(), "r")?;
    assert_eq!((&report["steps"], &report["step_range"]), (&148.into(), &serde_json::json!([2, 149])));
    Ok(())
}

#[test]
fn a_flipped_bit_in_a_log_costs_its_batch_and_is_reported_everywhere() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let server = Server::start(data.path())?;
    server.send((0..60).map(|seq| one_step(&run, seq)))?;
    server.kill()?;
    let log = folder(data.path(), &run).log(1);
    flip_in_the_middle(&log)?;

    let server = Server::start(data.path())?;
    server.send([one_step_and_goodbye(&run, 60)])?;
    let is_told = |text: &str| {
        text.contains("the files of at least 1 stored batch are damaged or were removed")
            && text.contains("log-000001.plog")
    };
    let live = get_json(&format!("{}/api/v1/runs/r", server.address))?;
    assert!(gap(&live, "stored_batches").is_some_and(is_told), "{:#}", live["gaps"]);
    let page = format!("{}/api/v1/runs/r?form=html", server.address);
    let page = ureq::get(page).call()?.body_mut().read_to_string()?;
    assert!(is_told(&page), "the report as a page does not say it: {page}");
    wait_until("the sealing", || folder(data.path(), &run).segment(2).exists().then_some(()))?;
    server.kill()?;

    let report = report(data.path(), "r")?;
    assert_eq!(report["steps"], 58, "{report:#}");
    assert!(gap(&report, "stored_batches").is_some_and(is_told), "{report:#}");
    assert!(is_told(&runs(data.path())?));
    assert!(log.exists(), "the damaged file was removed");
    Ok(())
}

/// Returns the runs of a server, once it serves any.
fn served(server: &Server) -> anyhow::Result<Vec<String>> {
    let runs = wait_until("the first runs", || {
        let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
        runs.as_array().filter(|runs| !runs.is_empty()).cloned()
    })?;
    Ok(runs.iter().filter_map(|run| run["run"].as_str().map(str::to_owned)).collect())
}

/// Creates a data directory with two runs that have ended. Returns the path of a file of the first run.
fn two_runs(data: &Path, file: &str) -> anyhow::Result<PathBuf> {
    let server = Server::start(data)?;
    for run in ["bad", "good"] {
        let run = RunId::new(run)?;
        server.send((0..9).map(|seq| one_step(&run, seq)))?;
        server.send([one_step_and_goodbye(&run, 9)])?;
        wait_until_sealed(data, &run)?;
    }
    server.kill()?;
    Ok(folder(data, &RunId::new("bad")?).path.join(file))
}

#[test]
fn a_run_with_a_damaged_manifest_is_set_aside_by_name_and_its_ranks_are_refused() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    flip_in_the_middle(&two_runs(data.path(), "manifest.json")?)?;
    let listed = runs(data.path())?;
    assert!(listed.contains("good"), "{listed}");
    assert!(listed.contains("bad cannot be read") && listed.contains("manifest.json"), "{listed}");

    let server = Server::start(data.path())?;
    assert_eq!(served(&server)?, ["good"]);
    let (status, error) = server.post(&one_step(&RunId::new("bad")?, 10))?;
    assert_eq!(status, 409);
    assert!(error.contains("cannot be read") && error.contains("manifest.json"), "{error}");
    Ok(())
}

#[test]
fn a_damaged_segment_is_named_and_does_not_prevent_a_server_from_starting() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    flip_in_the_middle(&two_runs(data.path(), "segment-000001/steps.parquet")?)?;
    let listed = runs(data.path())?;
    assert!(listed.contains("bad") && listed.contains("steps.parquet: it does not match"), "{listed}");
    let server = Server::start(data.path())?;
    assert_eq!(served(&server)?, ["good"]);
    Ok(())
}

/// Tests two processes that claim to be the same rank: the second is deferred, then refused. A restarted process is
/// accepted.
#[test]
fn a_second_process_of_an_active_rank_is_refused_and_a_restarted_one_is_not() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let server = Server::start(data.path())?;
    let batch =
        |incarnation: u64, seq: u64| Batch { incarnation: Incarnation(incarnation), ..one_step(&run, seq) };
    server.send([batch(u64::MAX, 0)])?;
    let (status, error) = server.post(&batch(5, 0))?;
    assert_eq!(status, 503, "{error}");
    assert!(error.contains("rank 0 of run r is taken"), "{error}");
    // The first process sends for longer than the grace period after a process's end.
    let mut seq = 0;
    let refusal = wait_until("a refusal", || {
        seq += 1;
        server.send([batch(u64::MAX, seq)]).ok()?;
        server.post(&batch(5, 0)).ok().filter(|(status, _)| *status == 409)
    })?;
    assert!(refusal.1.contains("two processes claim to be rank 0"), "{}", refusal.1);
    let refused = wait_until("the refusal in the report", || {
        let report = get_json(&format!("{}/api/v1/runs/r", server.address)).ok()?;
        gap(&report, "refused_batches").map(str::to_owned)
    })?;
    assert!(refused.contains("1 batch was refused"), "{refused}");
    // The first process stops. Its successor has an earlier incarnation, as after a clock that was set back.
    wait_until("the successor to be accepted", || {
        server.post(&batch(5, 1)).ok().filter(|(status, _)| *status == 200)
    })?;
    Ok(())
}

/// Tests a server whose standard error is closed: every log line fails, but no thread ends.
#[test]
fn a_server_with_closed_standard_error_continues_sealing() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let (reader, writer) = std::io::pipe()?;
    let mut command = Command::new(program("paceline"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path()).stderr(writer);
    let server = Server::spawn(command)?;
    drop(reader);
    for run in ["first", "second"] {
        let run = RunId::new(run)?;
        server.send([one_step(&run, 0), one_step_and_goodbye(&run, 1)])?;
        // The sealer logs a line for each run.
        wait_until_sealed(data.path(), &run)?;
    }
    let ready = ureq::get(format!("{}/readyz", server.address)).call().context("the server is not ready")?;
    assert_eq!(ready.status(), 200);
    Ok(())
}
