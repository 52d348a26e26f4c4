//! Tests of what a job could not send before it ended: it is kept on disk, and the next command sends it.

use std::process::Command;

use anyhow::{Context as _, ensure};
use rustix::fs::{CWD, FileType, Mode, mknodat};
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

#[test]
fn a_job_with_a_mistyped_token_loses_nothing_and_no_other_server_sees_the_right_one() -> anyhow::Result<()> {
    const TOKEN: &str = "the-right-one";
    let (data, spool) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let folder = spool.path().join("spool");
    let server = Server::start_with_token(data.path(), TOKEN)?;
    let ended = Command::new(program("paceline"))
        .args(["run", "-n", "2", "--server", &server.address, "--", "char_lm", "--steps", "20"])
        .env("PACELINE_TOKEN", "the-rigth-one")
        .env("PACELINE_SPOOL_DIR", &folder)
        .output()?;
    let (complaints, _) = said(&ended);
    ensure!(ended.status.success(), "{ended:?}");
    ensure!(complaints.contains("(training continues): it does not accept PACELINE_TOKEN"), "{complaints}");
    let files =
        || anyhow::Ok(std::fs::read_dir(&folder)?.flatten().map(|file| file.path()).collect::<Vec<_>>());
    ensure!(files()?.len() == 2, "{complaints}");

    let next = |token: Option<&str>, server: &str| -> anyhow::Result<String> {
        let mut command = Command::new(program("paceline"));
        command.args(["runs", "--data"]).arg(data.path());
        command.env("PACELINE_SPOOL_DIR", &folder).env("PACELINE_SERVER", server);
        command.envs(token.map(|token| ("PACELINE_TOKEN", token)));
        Ok(said(&command.output()?).1)
    };
    let said = next(None, &server.address)?;
    ensure!(said.matches("is kept, because it requires a token: set PACELINE_TOKEN").count() >= 1, "{said}");
    let said = next(Some(TOKEN), "http://127.0.0.1:1")?;
    ensure!(said.contains("it requires a token"), "the token is that of another server: {said}");
    let said = next(Some("wrong"), &server.address)?;
    ensure!(said.contains("it does not accept PACELINE_TOKEN"), "{said}");

    // What was cut is sent up to there, and stays to be looked at. What is not a file is named, and holds nothing up.
    let cut = std::fs::OpenOptions::new().write(true).open(&files()?[0])?;
    cut.set_len(cut.metadata()?.len() - 1)?;
    mknodat(CWD, folder.join("pipe.spool"), FileType::Fifo, Mode::RWXU, 0)?;
    let said = next(Some(TOKEN), &server.address)?;
    ensure!(said.matches(&format!("sent to {}", server.address)).count() == 2, "{said}");
    ensure!(said.contains("it is damaged from its batch ") && said.contains("it is not a file"), "{said}");
    let left: Vec<_> =
        files()?.iter().filter_map(|path| path.extension().map(|ending| ending.to_owned())).collect();
    ensure!(left.len() == 2 && left.iter().any(|ending| ending == "damaged"), "{left:?}");
    Ok(())
}
