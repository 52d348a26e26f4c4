//! Kills every part of a real job with `kill -9`, again and again: nothing acknowledged is lost.
//!
//! `PACELINE_KILLS` sets the total number of kills (100 by default).

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::programs::{Job, Server, gap, get_json, paceline, program, report, wait_until};

/// Serializes tests. Ports are reused all the time, and an agent that looks for its dead server must not find rank 0 of
/// another job there.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kills() -> u64 {
    std::env::var("PACELINE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(100)
}

/// Returns the number of batches that a server has stored since it started.
fn stored(server: &Server) -> Option<u64> {
    let metrics =
        ureq::get(format!("{}/metrics", server.address)).call().ok()?.body_mut().read_to_string().ok()?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("paceline_server_batches_total "))?;
    line.parse().ok()
}

/// Returns the parts of a report that do not depend on time: the state, the ranks, the drops and the buckets. Every
/// bucket must have one collective per step.
fn counted(report: &Value) -> anyhow::Result<Value> {
    let steps = &report["steps"];
    let buckets = report["buckets"].as_array().context("the report has no buckets")?;
    for bucket in buckets {
        ensure!(bucket["collectives"] == *steps, "{steps} steps, {} of one bucket", bucket["collectives"]);
    }
    let sizes: Vec<Value> = buckets.iter().map(|bucket| json!([bucket["bucket"], bucket["bytes"]])).collect();
    Ok(json!([report["state"], report["ranks"], report["drops"], gap(report, "stored_batches"), sizes]))
}

/// Runs one server after another at the same address and kills each: some before they listen, some as soon as they have
/// stored a batch.
fn kill_servers(first: Server, data: &Path, kills: u64) -> anyhow::Result<Server> {
    let listen = first.listen().to_owned();
    let mut server = first;
    for kill in 0..kills {
        // After the job has ended, no more batches arrive. The server is killed anyway.
        let patience = Instant::now() + Duration::from_secs(1);
        while stored(&server) == Some(0) && Instant::now() < patience {
            std::thread::yield_now();
        }
        server.kill()?;
        if kill % 2 == 0 {
            let mut command = Command::new(program("paceline"));
            command.args(["serve", "--listen", &listen, "--data"]).arg(data);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            // A time between the first instruction and the first batch.
            std::thread::sleep(Duration::from_millis(kill % 40));
            child.kill()?;
            child.wait()?;
        }
        server = Server::start_at(data, &listen)?;
    }
    Ok(server)
}

#[test]
fn a_job_whose_server_is_killed_repeatedly_has_the_report_of_an_undisturbed_job() -> anyhow::Result<()> {
    let _alone = alone();
    // Every second kill is followed by a kill of a server that has just started.
    let kills = kills() * 6 / 10;
    let steps = kills * 5;
    let train = |server: &Server, steps: u64| {
        Job::start(&["-n", "2", "--server", &server.address, "--", "char_lm", "--steps", &steps.to_string()])
    };
    let undisturbed = tempfile::tempdir()?;
    let server = Server::start(undisturbed.path())?;
    let (code, printed, complaints) = train(&server, 60)?.finish()?;
    assert_eq!(code, 0, "{printed}{complaints}");
    drop(server);

    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let job = train(&server, steps)?;
    let server = kill_servers(server, data.path(), kills)?;
    let (code, printed, complaints) = job.finish()?;
    assert_eq!(code, 0, "{printed}{complaints}");
    let summary = wait_until("the run to complete", || {
        let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
        Some(runs[0].clone()).filter(|run| run["state"] == "completed")
    })?;
    assert_eq!(summary["steps"], steps, "{summary:#}");
    server.kill()?;

    let (found, expected) = (report(data.path(), "latest")?, report(undisturbed.path(), "latest")?);
    assert_eq!(found["step_range"], json!([2, steps - 1]));
    assert_eq!(counted(&found)?, counted(&expected)?);
    Ok(())
}

/// Returns the newest run of a data directory, from `paceline runs`.
fn newest(data: &str) -> anyhow::Result<Value> {
    let output = paceline(&["runs", "--json", "--data", data])?;
    let runs: Value = serde_json::from_slice(&output.stdout)?;
    Ok(runs[0].clone())
}

#[test]
fn a_killed_job_has_all_steps_up_to_the_kill() -> anyhow::Result<()> {
    let _alone = alone();
    let data = tempfile::tempdir()?;
    let data = data.path().to_string_lossy().into_owned();
    for kill in 0..kills() / 20 {
        let mut job = Job::start(&["-n", "2", "--data", &data, "--", "char_lm", "--steps", "100000"])?;
        job.wait_for("step     50/")?;
        // Records reach the server within half a second.
        std::thread::sleep(Duration::from_millis(650 + kill));
        if kill % 2 == 0 {
            drop(job);
        } else {
            let rank = job.rank_pids()?[kill as usize / 2 % 2];
            kill_process(Pid::from_raw(rank as i32).context("a pid is positive")?, Signal::KILL)?;
            assert_eq!(job.finish()?.0, 137);
        }
        // Every step up to the last one that all ranks sent is stored. (Records that a killed rank had not sent are
        // lost.)
        let (run, report) = (newest(&data)?, report(Path::new(&data), "latest")?);
        let steps = run["steps"].as_u64().unwrap_or(0);
        assert!(steps >= 50, "kill {kill}: {run:#}");
        // Of each 50 steps, number 25 is a shadow step, which a report does not count.
        let last = if (steps - 1) % 50 == 25 { steps - 2 } else { steps - 1 };
        assert_eq!(report["step_range"], json!([2, last]), "kill {kill}: {steps} complete steps have a gap");
    }
    Ok(())
}
