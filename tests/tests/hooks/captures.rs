//! Tests with real PyTorch: traces of the same steps on request, and jobs that are not harmed by them.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;
use tempfile::TempDir;
use testkit::programs::{Running, Server, get_json, program, wait_until};
use testkit::torch::Torch;

use super::pytorch::{result_of, script, torchrun_of};

const SCRIPT: &str = "traced.py";
/// The step from which on a job may be traced: its steps are known.
const KNOWN: u64 = 60;
/// The steps after which a job stops once it is told to. It prints the losses of as many.
const STEPS: &str = "400";

/// A job that trains until it is told to stop.
struct Job {
    running: Running,
    folder: TempDir,
}

impl Job {
    /// Starts the job. `own` says when it uses its own profiler.
    fn start(torch: &Torch, server: Option<&str>, own: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let job = torchrun_of(torch, &[&script(SCRIPT), own]);
        let mut command = match server {
            Some(server) => {
                let mut command = Command::new(program("paceline"));
                command.args(["run", "--server", server]).args(&job);
                command
            }
            None => {
                let mut command = Command::new(&job[0]);
                command.args(&job[1..]);
                command
            }
        };
        command.env("FOLDER", folder.path()).env("STEPS", STEPS).env("PACELINE_OVERHEAD_BUDGET", "100");
        let running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?);
        Ok(Self { running, folder })
    }

    fn tell(&self, what: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.folder.path().join(what), "")?)
    }

    /// Lets the job stop and returns its losses.
    fn losses(&mut self) -> anyhow::Result<String> {
        self.tell("STOP")?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let errors = self.running.0.stderr.take().context("stderr is not piped")?;
        let reader = std::thread::Builder::new().spawn(move || {
            let mut errors = errors;
            let _torn = errors.read_to_end(&mut stderr);
            stderr
        })?;
        self.running.0.stdout.take().context("stdout is not piped")?.read_to_end(&mut stdout)?;
        let status = self.running.0.wait()?;
        let stderr = reader.join().unwrap_or_default();
        ensure!(status.success(), "{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        result_of(&Output { status, stdout, stderr })
    }
}

impl Job {
    /// Returns the number of updates in the trace that the job itself made.
    fn own_updates(&self) -> anyhow::Result<usize> {
        let own: Value = serde_json::from_slice(&std::fs::read(self.folder.path().join("own-0.json"))?)?;
        let is_update =
            |event: &&Value| event["name"].as_str().is_some_and(|name| name.starts_with("Optimizer.step"));
        Ok(own["traceEvents"].as_array().into_iter().flatten().filter(is_update).count())
    }
}

/// Waits until the newest run of a server has the step `step`. Returns its id.
fn wait_for_step(server: &str, step: u64) -> anyhow::Result<String> {
    wait_until("the steps", || {
        let runs = get_json(&format!("{server}/api/v1/runs")).ok()?;
        let is_there = runs[0]["last_step"].as_u64()? >= step;
        is_there.then(|| runs[0]["run"].as_str().map(str::to_owned))?
    })
}

fn trace(server: &str, arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(program("paceline"))
        .args(["trace", "latest", "--server", server])
        .args(arguments)
        .output()?)
}

fn events(file: &Path) -> anyhow::Result<Vec<Value>> {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(file)?).read_to_string(&mut text)?;
    let trace: Value = serde_json::from_str(&text)?;
    Ok(trace["traceEvents"].as_array().context("there are no events")?.clone())
}

/// Returns the names of the steps in a trace, in order.
fn steps(events: &[Value]) -> Vec<String> {
    let names = events.iter().filter(|event| event["cat"] == "user_annotation");
    let mut names: Vec<String> = names.filter_map(|event| Some(event["name"].as_str()?.to_owned())).collect();
    names.retain(|name| name.starts_with("ProfilerStep#"));
    names.sort();
    names
}

fn traces_name_the_planted_operator(torch: &Torch) -> anyhow::Result<()> {
    if !torch.is_installed()? {
        return Ok(());
    }
    let alone = Job::start(torch, None, "never")?.losses()?;
    let (data, output) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let server = Server::start(data.path())?;
    let mut job = Job::start(torch, Some(&server.address), "never")?;
    let run = wait_for_step(&server.address, KNOWN)?;
    let folder = output.path().to_string_lossy();
    let arguments = ["--ranks", "1,0", "--steps", "4", "--output", &folder];
    // On a busy machine, a job may become faster within the time that a request takes.
    let together = || {
        let told = trace(&server.address, &arguments).ok()?;
        (!String::from_utf8_lossy(&told.stdout).contains("was beyond it")).then_some(told)
    };
    let told = wait_until("traces of the same steps", together)?;
    let printed = String::from_utf8_lossy(&told.stdout);
    ensure!(told.status.success(), "{told:?}");
    let captures = format!("{}/api/v1/runs/{run}/captures", server.address);
    let capture = get_json(&captures)?[0].clone();
    let first = capture["first_step"].as_u64().context("no first step")?;
    let expected: Vec<String> = (first..first + 4).map(|step| format!("ProfilerStep#{step}")).collect();
    for rank in 0..2 {
        let events = events(&output.path().join(format!("rank-{rank}.trace.json.gz")))?;
        ensure!(steps(&events) == expected, "rank {rank}: {:?}", steps(&events));
        let loops = events.iter().filter(|event| event["name"] == "aten::cosh").count();
        ensure!(loops == if rank == 1 { 800 } else { 0 }, "rank {rank} has {loops}");
    }
    // What the command lists first is what the API answers first.
    let comparison = get_json(&format!("{captures}/{}/comparison", capture["id"]))?;
    let row = &comparison["rows"][0];
    ensure!(
        row["name"] == "aten::cosh" && row["kind"] == "operator" && row["own_calls"] == 200.0,
        "{comparison:#}"
    );
    ensure!((&comparison["rank"], &comparison["against"]) == (&1.into(), &0.into()), "{comparison:#}");
    let listed =
        printed.lines().find(|line| line.starts_with("  ") && line.contains(": ")).unwrap_or_default();
    ensure!(listed.contains("aten::cosh"), "{printed}");
    ensure!(job.losses()? == alone, "the losses differ");
    survives_a_restart(server, data.path(), &run)
}

/// Starts the server again, and then again with a damaged trace.
fn survives_a_restart(server: Server, data: &Path, run: &str) -> anyhow::Result<()> {
    server.kill()?;
    let server = Server::start(data)?;
    let captures = format!("{}/api/v1/runs/{run}/captures", server.address);
    let id = get_json(&captures)?[0]["id"].clone();
    let fetch = |rank: u32| {
        Ok::<_, anyhow::Error>(
            Command::new("curl").args(["-s", &format!("{captures}/{id}/ranks/{rank}")]).output()?.stdout,
        )
    };
    let file = data.join("runs").join(run).join(format!("captures/{id}-rank-0.trace.gz"));
    let whole = std::fs::read(&file)?;
    ensure!(fetch(0)? == whole);
    std::fs::write(&file, &whole[1..])?;
    let damaged = String::from_utf8(fetch(0)?)?;
    ensure!(damaged.contains("damaged on disk"), "{damaged}");
    ensure!(fetch(1)?.starts_with(&[0x1f, 0x8b]), "the other rank's trace is whole");
    Ok(())
}

#[test]
fn a_trace_continues_until_the_device_has_run_its_steps() -> anyhow::Result<()> {
    let torch = Torch::newest();
    if !torch.is_installed()? {
        return Ok(());
    }
    let (data, output) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let server = Server::start(data.path())?;
    let mut job = Job::start(&torch, Some(&server.address), "late")?;
    wait_for_step(&server.address, KNOWN)?;
    let folder = output.path().to_string_lossy();
    let told = trace(&server.address, &["--ranks", "0", "--steps", "3", "--output", &folder])?;
    ensure!(told.status.success(), "{told:?}");
    let events = events(&output.path().join("rank-0.trace.json.gz"))?;
    let named = |name: &str| {
        events
            .iter()
            .filter(|event| event["name"].as_str().is_some_and(|found| found.starts_with(name)))
            .count()
    };
    // A trace ends within a step, before its update.
    ensure!(steps(&events).len() == 3, "{:?}", steps(&events));
    ensure!(named("Optimizer.step") == 8, "{} updates", named("Optimizer.step"));
    job.losses().map(drop)
}

#[test]
fn traces_of_the_newest_release_name_the_planted_operator() -> anyhow::Result<()> {
    traces_name_the_planted_operator(&Torch::newest())
}

#[test]
fn traces_of_an_older_release_name_the_planted_operator() -> anyhow::Result<()> {
    Torch::old_for("traces").map_or(Ok(()), |torch| traces_name_the_planted_operator(&torch))
}

fn a_profiler_of_the_job_has_precedence(torch: &Torch) -> anyhow::Result<()> {
    if !torch.is_installed()? {
        return Ok(());
    }
    let alone = Job::start(torch, None, "always")?.losses()?;
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut job = Job::start(torch, Some(&server.address), "always")?;
    wait_for_step(&server.address, KNOWN)?;
    let told = trace(&server.address, &[])?;
    let printed = String::from_utf8_lossy(&told.stdout);
    ensure!(!told.status.success(), "{told:?}");
    ensure!(printed.matches("no trace: the job's own profiler is active").count() == 2, "{printed}");
    ensure!(job.losses()? == alone, "the losses differ");
    ensure!(job.own_updates()? > 100, "the job's own trace has few steps");
    Ok(())
}

#[test]
fn a_profiler_of_the_job_has_precedence_in_the_newest_release() -> anyhow::Result<()> {
    a_profiler_of_the_job_has_precedence(&Torch::newest())
}

#[test]
fn a_profiler_of_the_job_has_precedence_in_an_older_release() -> anyhow::Result<()> {
    Torch::old_for("a profiler of the job")
        .map_or(Ok(()), |torch| a_profiler_of_the_job_has_precedence(&torch))
}

/// The job profiles every tenth step, so twenty steps are never without its own profiler.
fn a_trace_gives_way(torch: &Torch) -> anyhow::Result<()> {
    if !torch.is_installed()? {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut job = Job::start(torch, Some(&server.address), "within")?;
    wait_for_step(&server.address, KNOWN)?;
    let asked = || {
        let told = trace(&server.address, &["--steps", "20", "--ranks", "0"]).ok()?;
        let printed = String::from_utf8_lossy(&told.stdout).into_owned();
        // One trace in ten would begin with a step that the job profiles.
        (!printed.contains("own profiler is active")).then_some(printed)
    };
    let printed = wait_until("an answer", asked)?;
    ensure!(printed.contains("no trace: the job started its own profiler during the trace"), "{printed}");
    job.losses()?;
    ensure!(job.own_updates()? == 1, "the job's own trace does not have its step");
    Ok(())
}

#[test]
fn a_trace_gives_way_to_a_profiler_of_the_job() -> anyhow::Result<()> {
    a_trace_gives_way(&Torch::newest())
}

#[test]
fn a_trace_gives_way_to_a_profiler_of_the_job_in_an_older_release() -> anyhow::Result<()> {
    Torch::old_for("a trace during a profile").map_or(Ok(()), |torch| a_trace_gives_way(&torch))
}

#[test]
fn a_server_that_is_killed_during_a_trace_does_not_harm_the_job() -> anyhow::Result<()> {
    let torch = Torch::newest();
    if !torch.is_installed()? {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let (listen, address) = (server.listen().to_owned(), server.address.clone());
    let mut job = Job::start(&torch, Some(&address), "never")?;
    let run = wait_for_step(&address, KNOWN)?;
    let told = trace(&address, &["--steps", "20", "--wait", "0"])?;
    ensure!(
        told.status.success() && String::from_utf8_lossy(&told.stdout).contains("no answer yet"),
        "{told:?}"
    );
    // Whether the ranks have received the request or not, the next server gets their traces.
    let newest = get_json(&format!("{address}/api/v1/runs/{run}/summary"))?["last_step"].as_u64();
    wait_for_step(&address, newest.unwrap_or(0) + 20)?;
    server.kill()?;
    let server = Server::start_at(data.path(), &listen)?;
    let stored = wait_until("the traces", || {
        let captures = get_json(&format!("{}/api/v1/runs/{run}/captures", server.address)).ok()?;
        let ranks = captures[0]["ranks"].as_array()?.clone();
        ranks.iter().all(|rank| rank["outcome"]["result"] != "waiting").then_some(ranks)
    })?;
    ensure!(stored.iter().all(|rank| rank["outcome"]["steps"] == 20), "{stored:?}");
    job.losses().map(drop)
}

#[test]
fn a_run_that_cannot_be_traced_says_why() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut command = Command::new(program("paceline"));
    command.args(["run", "--server", &server.address, "-n", "2", "char_lm", "--steps", "30"]);
    ensure!(command.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success());
    wait_until("the end of the run", || {
        let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
        (runs[0]["state"] == "completed").then_some(())
    })?;
    let told = trace(&server.address, &[])?;
    let complaint = String::from_utf8_lossy(&told.stderr);
    ensure!(complaint.contains("has ended"), "{complaint}");
    for (arguments, part) in [(["--ranks", "x"], "--ranks"), (["--steps", "21"], "1..=20")] {
        let told = trace(&server.address, &arguments)?;
        let complaint = String::from_utf8_lossy(&told.stderr);
        ensure!(!told.status.success() && complaint.contains(part), "{complaint}");
    }
    Ok(())
}
