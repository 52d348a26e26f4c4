//! A test of what a job could not send before it ended: it is kept on disk, and the next command sends it.

use std::process::Command;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use testkit::programs::{Server, get_json, paceline, program, said, wait_until};

#[test]
fn what_a_job_could_not_send_to_a_stopped_server_is_sent_by_the_next_command() -> anyhow::Result<()> {
    let (data, spool) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let folder = spool.path().join("spool");
    let server = Server::start(data.path())?;
    let pid = Pid::from_raw(server.pid() as i32).context("a pid is positive")?;
    let job = ["-n", "2", "--server", &server.address, "--name", "left", "--", "char_lm", "--steps", "150"];
    let mut command = Command::new(program("paceline"));
    command.arg("run").args(job).env("PACELINE_SPOOL_DIR", &folder);
    let job = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn()?;
    let url = format!("{}/api/v1/runs", server.address);
    wait_until("the first steps", || get_json(&url).ok()?[0]["steps"].as_u64().filter(|steps| *steps >= 20))?;
    kill_process(pid, Signal::STOP)?;
    let ended = job.wait_with_output();
    kill_process(pid, Signal::CONT)?;
    let ended = ended?;
    // The launcher prints what ranks say, on either stream, to its standard output.
    let complaints = String::from_utf8_lossy(&ended.stdout);
    ensure!(ended.status.success(), "{ended:?}");
    for rank in 0..2 {
        let kept = format!("records of rank {rank} did not reach {} and are kept in ", server.address);
        ensure!(complaints.contains(&kept), "{complaints}");
    }
    let files = || anyhow::Ok(std::fs::read_dir(&folder)?.count());
    ensure!(files()? == 2, "{complaints}");

    let mut next = Command::new(program("paceline"));
    next.args(["runs", "--data"]).arg(data.path()).env("PACELINE_SPOOL_DIR", &folder);
    let next = next.output()?;
    let complaints = String::from_utf8_lossy(&next.stderr);
    ensure!(complaints.matches("of an earlier job: ").count() == 2, "{complaints}");
    ensure!(files()? == 0, "{complaints}");
    let (listed, _) =
        said(&paceline(&["report", "latest", "--json", "--data", &data.path().to_string_lossy()])?);
    let report: serde_json::Value = serde_json::from_str(&listed)?;
    ensure!(report["state"] == "completed" && report["drops"] == serde_json::json!([]), "{report:#}");
    ensure!(report["step_range"][1] == 149 && report["steps"].as_u64() >= Some(140), "{report:#}");
    Ok(())
}
