//! Tests with killed processes. The server loses nothing that it acknowledged, the job is not affected, and a job whose
//! rank is killed ends with an error that names the rank.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use paceline::store::StoreError;
use paceline::store::batches;
use paceline::store::directory::Layout;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::hostile;
use testkit::programs::{Job, Server, get, get_json, report, wait_until};
use testkit::small_disk::SmallDisk;
use testkit::stored::one_step;
use wire::ids::RunId;

/// Returns the summary of a server's only run once the run has completed.
fn completed(server: &Server) -> anyhow::Result<Value> {
    wait_until("the run to complete", || {
        let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
        Some(runs[0].clone()).filter(|run| run["state"] == "completed")
    })
}

#[test]
fn a_restart_of_the_server_does_not_affect_the_job_and_loses_no_step() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let listen = server.listen().to_owned();
    let mut job = Job::start(&["-n", "4", "--server", &server.address, "--", "char_lm", "--steps", "150"])?;
    job.wait_for("step     50/150")?;
    server.kill()?;
    job.wait_for("step    100/150")?;
    let server = Server::start_at(data.path(), &listen)?;
    let (code, printed, complaints) = job.finish()?;
    assert_eq!(code, 0, "{printed}{complaints}");
    let summary = completed(&server)?;
    assert_eq!(summary["steps"], 150, "{summary:#}");
    let run = summary["run"].as_str().unwrap_or_default().to_owned();
    drop(server);
    // The report from disk, which another process reads.
    let report = report(data.path(), &run)?;
    assert_eq!(report["state"], "completed");
    assert_eq!(report["drops"], serde_json::json!([]), "{report:#}");
    Ok(())
}

#[test]
fn the_first_answer_of_a_restarted_server_lists_all_runs() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    server.send((0..20).map(|run| hostile::steps(&format!("live-{run}"), 1, 0, 0..6, 2)))?;
    server.send([hostile::steps("over", 1, 0, 0..6, 2), hostile::goodbye("over", 1, 1)])?;
    server.kill()?;
    let server = Server::start(data.path())?;
    let runs = get_json(&format!("{}/api/v1/runs", server.address))?;
    let listed = runs.as_array().map_or(0, Vec::len);
    assert_eq!(listed, 21, "{runs:#}");
    let live = runs.as_array().into_iter().flatten().find(|run| run["run"] == "live-7");
    let live = live.ok_or_else(|| anyhow::anyhow!("live-7 is not listed: {runs:#}"))?;
    assert_eq!((&live["state"], &live["last_step"]), (&"running".into(), &5.into()), "{live:#}");
    Ok(())
}

#[test]
fn a_full_disk_does_not_affect_the_job_and_loses_no_step() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let Some(disk) = SmallDisk::start(data.path())? else { return Ok(()) };
    let job = Job::start(&["-n", "2", "--server", &disk.server.address, "--", "char_lm", "--steps", "400"])?;
    disk.wait_until_full()?;
    let files = disk.files()?;
    assert!(files.len() < 10, "the server left a file for every attempt: {files:?}");
    let readyz = format!("{}/readyz", disk.server.address);
    let (status, said) = get(&readyz)?;
    assert!(status == 503 && said.contains("cannot store batches: cannot"), "{status} {said}");
    disk.make_room()?;
    wait_until("the server to be ready", || get(&readyz).ok().filter(|(status, _)| *status == 200))?;
    let (code, printed, complaints) = job.finish()?;
    assert_eq!(code, 0, "{printed}{complaints}");
    let summary = completed(&disk.server)?;
    assert_eq!(summary["steps"], 400, "{summary:#}");
    Ok(())
}

/// Sends batch after batch and records the acknowledged ones, until the server is killed.
fn send_until_dead(
    address: &str,
    run: &RunId,
    from: u64,
    acknowledged: &Mutex<Vec<u64>>,
    started: &AtomicBool,
) {
    let url = format!("{address}/api/v1/ingest");
    let client = ureq::Agent::new_with_defaults();
    for seq in from.. {
        let frame = wire::codec::encode(&one_step(run, seq)).expect("a batch can be encoded");
        match client.post(&url).send(frame.as_slice()) {
            Ok(answer) if answer.status() == 200 => {
                acknowledged.lock().expect("no thread has panicked").push(seq);
                started.store(true, Ordering::Release);
            }
            _ => return,
        }
    }
}

fn batches_on_disk(data: &Path, run: &RunId) -> anyhow::Result<Vec<u64>> {
    let mut found = Vec::new();
    let condition = batches::each_batch(&Layout::new(data).folder(run), |received| {
        found.push(received.batch.seq.0);
        Ok::<(), StoreError>(())
    })?;
    assert_eq!(condition.gaps(None), []);
    Ok(found)
}

/// Kills ten servers, one after another, while batches arrive.
#[test]
fn acknowledged_batches_are_on_disk_whenever_the_server_is_killed() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("killed")?;
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    for life in 0..10_u64 {
        let server = Server::start(data.path())?;
        let started = Arc::new(AtomicBool::new(false));
        let first = acknowledged.lock().expect("no thread has panicked").last().map_or(0, |seq| seq + 1);
        let sender = {
            let (address, run) = (server.address.clone(), run.clone());
            let (acknowledged, started) = (acknowledged.clone(), started.clone());
            std::thread::spawn(move || send_until_dead(&address, &run, first, &acknowledged, &started))
        };
        wait_until("the first acknowledgment", || started.load(Ordering::Acquire).then_some(()))?;
        // The delay grows, so that the kills hit different moments of the commit.
        std::thread::sleep(std::time::Duration::from_micros(700 * life));
        server.kill()?;
        sender.join().expect("the sender has not panicked");
        let on_disk = batches_on_disk(data.path(), &run)?;
        for seq in acknowledged.lock().expect("no thread has panicked").iter() {
            assert!(on_disk.contains(seq), "batch {seq} was acknowledged but is not on disk (server {life})");
        }
    }
    assert!(acknowledged.lock().expect("no thread has panicked").len() >= 10);
    Ok(())
}

#[test]
fn the_other_ranks_name_a_killed_rank_in_their_errors() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy().into_owned();
    let mut job = Job::start(&["-n", "4", "--data", &data_text, "--", "char_lm", "--steps", "100000"])?;
    job.wait_for("step     50/")?;
    let pids = job.rank_pids()?;
    assert_eq!(pids.len(), 4);
    kill_process(Pid::from_raw(pids[2] as i32).expect("a pid is positive"), Signal::KILL)?;
    let (code, printed, complaints) = job.finish()?;
    assert_eq!(code, 137, "the launcher does not exit with the code of the killed rank: {complaints}");
    assert!(complaints.contains("rank 2 was the first to fail: it was killed by signal 9"), "{complaints}");
    for survivor in ["[0]", "[1]", "[3]"] {
        let names_it = printed.lines().any(|line| line.starts_with(survivor) && line.contains("rank 2"));
        assert!(names_it, "{survivor} does not name rank 2:\n{printed}");
    }
    let report = report(data.path(), "latest")?;
    assert_eq!(report["state"], "failed", "{report:#}");
    Ok(())
}

#[test]
fn ranks_end_when_their_launcher_is_killed() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy().into_owned();
    let mut job = Job::start(&["-n", "2", "--data", &data_text, "--", "char_lm", "--steps", "100000"])?;
    job.wait_for("step     50/")?;
    let pids = job.rank_pids()?;
    drop(job);
    let gone = |pid: &u32| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        state.map_or(true, |stat| stat.contains(") Z "))
    };
    wait_until("the ranks to end", || pids.iter().all(gone).then_some(()))
}

#[test]
fn ctrl_c_after_the_server_was_killed_ends_in_the_report_from_disk() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy().into_owned();
    // The launcher finds the data directory in use, and takes its server.
    let server = Server::start(data.path())?;
    let mut job = Job::start(&["-n", "2", "--data", &data_text, "--", "char_lm", "--steps", "100000"])?;
    job.wait_for("step     50/")?;
    wait_until("steps to be stored", || {
        let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
        runs[0]["steps"].as_u64().filter(|&steps| steps >= 30)
    })?;
    server.kill()?;
    job.interrupt()?;
    let (code, printed, complaints) = job.finish()?;
    assert_eq!(code, 130, "{printed}{complaints}");
    assert!(printed.contains("observed steps"), "there is no report:\n{printed}{complaints}");
    assert!(printed.contains("does not answer") && printed.contains("paceline report char_lm-"), "{printed}");
    Ok(())
}

#[test]
fn a_second_ctrl_c_ends_ranks_that_ignore_the_first() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy().into_owned();
    let ignores = "trap 'echo ignored' INT; echo ready; while true; do sleep 0.05; done";
    let mut job = Job::start(&["-n", "1", "--data", &data_text, "--", "sh", "-c", ignores])?;
    job.wait_for("ready")?;
    job.interrupt()?;
    job.wait_for("ignored")?;
    job.interrupt()?;
    let (code, printed, complaints) = job.finish()?;
    assert_eq!(code, 143, "the rank ends by SIGTERM: {printed}{complaints}");
    Ok(())
}

#[test]
fn a_hang_names_the_rank_that_the_others_wait_for() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut job =
        Job::start(&["-n", "3", "--server", &server.address, "--", "char_lm", "--steps", "100000"])?;
    job.wait_for("step     50/")?;
    let pids = job.rank_pids()?;
    kill_process(Pid::from_raw(pids[1] as i32).expect("a pid is positive"), Signal::STOP)?;
    let hang = wait_until("the hang to be reported", || {
        let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
        Some(runs[0]["hang"].clone()).filter(|hang| !hang.is_null())
    })?;
    assert_eq!(hang["ranks"], serde_json::json!([1]), "{hang:#}");
    assert!(hang["sentence"].as_str().is_some_and(|text| text.contains("rank 1 has not")), "{hang:#}");
    Ok(())
}
