//! Goodput of a real job with planted times, which is killed with `kill -9` and starts again at an earlier step.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::programs::{Running, Server, get_json, paceline, program, report, said, wait_until};

const RANKS: usize = 2;

/// Starts all ranks of the job, as a launcher of another maker does. `words` are the first step and the one after the last.
pub fn start(server: &Server, run: &str, ranks: usize, words: &[&str]) -> anyhow::Result<Vec<Running>> {
    let rank = |rank: usize| -> anyhow::Result<Running> {
        let mut command = Command::new(program("restarted_job"));
        command.args(words).env("PACELINE_SERVER", &server.address).env("PACELINE_RUN_ID", run);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
        Ok(Running(command.stdout(Stdio::piped()).spawn()?))
    };
    (0..ranks).map(rank).collect()
}

/// Returns the times that a rank printed, in nanoseconds on the host's clock: of its first begin and its last end.
fn printed(rank: &mut Child) -> anyhow::Result<(i64, i64)> {
    let mut text = String::new();
    rank.stdout.take().context("no output")?.read_to_string(&mut text)?;
    let time = |prefix: &str| -> anyhow::Result<i64> {
        let line = text.lines().find_map(|line| line.strip_prefix(prefix)).with_context(|| text.clone())?;
        Ok(line.trim().parse()?)
    };
    Ok((time("begin")?, time("end")?))
}

fn goodput(data: &Path) -> anyhow::Result<Value> {
    Ok(report(data, "restarted")?["goodput"].clone())
}

#[test]
fn a_killed_and_restarted_job_has_every_part_of_its_time_as_planted() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let api = format!("{}/api/v1/runs/restarted", server.address);
    let mut first = start(&server, "restarted", RANKS, &["0"])?;
    wait_until("step 99", || (get_json(&api).ok()?["step_range"][1] == 99).then_some(()))?;
    let mut ends = Vec::new();
    for rank in &mut first {
        rank.0.kill()?;
        rank.0.wait()?;
        ends.push(printed(&mut rank.0)?.1);
    }
    let mut second = start(&server, "restarted", RANKS, &["80", "120"])?;
    let mut recovery = 0;
    for (rank, end) in second.iter_mut().zip(ends) {
        let begin = printed(&mut rank.0)?.0;
        recovery += begin - end;
        ensure!(rank.0.wait()?.success());
    }
    let live = wait_until("the end of the run", || {
        let report = get_json(&api).ok()?;
        (report["state"] == "completed").then(|| report["goodput"].clone())
    })?;
    let millis = 1e6 * RANKS as f64;
    let planted = [
        ("launch", 1_000.0),
        ("setup", 1_500.0),
        ("warm_up", 60.0),
        ("compute", 98.0 * 30.0 + 20.0 * 30.0),
        ("checkpoint", 500.0),
        ("evaluation", 600.0),
        ("repeated", 20.0 * 30.0 + 100.0),
        ("recovery", recovery as f64 / millis),
    ];
    for (time_use, planted) in planted {
        let found = live["uses"][time_use].as_f64().unwrap_or(0.0) / millis;
        ensure!(
            (found / planted - 1.0).abs() < 0.05,
            "{time_use}: planted {planted} ms, found {found} ms: {live:#}"
        );
    }
    let sum: u64 =
        live["uses"].as_object().into_iter().flat_map(|uses| uses.values()).filter_map(Value::as_u64).sum();
    ensure!(Some(sum) == live["wall_nanos"].as_u64().map(|wall| wall * RANKS as u64), "{live:#}");
    ensure!(live["repeated_steps"] == 20 && live["knows_start"] == true, "{live:#}");
    ensure!(live["attempts"][1]["steps"] == serde_json::json!([80, 119]), "{live:#}");
    server.kill()?;
    ensure!(goodput(data.path())? == live, "from disk: {:#}", goodput(data.path())?);
    refuses_less(data.path(), &live)
}

/// A check of the run against itself fails if more goodput is asked for.
fn refuses_less(data: &Path, live: &Value) -> anyhow::Result<()> {
    let ratio = live["ratio"].as_f64().context("no ratio")?;
    let data = data.to_string_lossy();
    for (least, holds) in [(ratio - 0.01, true), (ratio + 0.01, false)] {
        let least = least.to_string();
        let words =
            ["check", "restarted", "--against", "restarted", "--min-goodput", &least, "--data", &data];
        let output = paceline(&words)?;
        ensure!(output.status.success() == holds, "{:?}", said(&output));
    }
    let (text, _) = said(&paceline(&["report", "restarted", "--data", &data])?);
    ensure!(text.contains("goodput") && text.contains("repeated steps"), "{text}");
    Ok(())
}
