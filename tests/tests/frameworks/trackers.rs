//! `paceline.log()` with the real trackers, offline, and a server that runs.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::frameworks::TRACKERS;
use testkit::programs::{Server, program};

use super::job::{TORCHRUN, run, script};

/// The figures that a job over gloo which counts no samples has.
const FIGURES: [&str; 4] = [
    "paceline/step_time_seconds",
    "paceline/implied_efficiency",
    "paceline/exposed_communication_share",
    "paceline/overlap_ratio",
];
/// Figures that this job does not give rise to.
const UNKNOWN: [&str; 2] = ["paceline/samples_per_second", "paceline/scaling_efficiency"];

/// Runs the job. Returns what the trackers' readers found.
fn found(python: &Path) -> anyhow::Result<Value> {
    let (data, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let server = Server::start(data.path())?;
    let (script, folder) = (script("tracked.py"), folder.path().to_string_lossy());
    let start = ["run", "--server", &server.address, &python.to_string_lossy()];
    let arguments = [&start[..], &TORCHRUN, &[&*script, "4000", &*folder]].concat();
    let variables = [
        ("PACELINE_OVERHEAD_BUDGET", "100"),
        ("WANDB_MODE", "offline"),
        ("WANDB_SILENT", "true"),
        ("MLFLOW_ALLOW_FILE_STORE", "true"),
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
    ];
    let printed = run(&program("paceline"), &arguments, &variables)?;
    let line = printed
        .lines()
        .find_map(|line| line.split_once("trackers have "))
        .with_context(|| printed.clone())?;
    Ok(serde_json::from_str(line.1)?)
}

/// Checks values of a figure, as (step, value): steps that increase, and values that are possible.
fn is_a_course(name: &str, values: &Value) -> anyhow::Result<()> {
    let values: Vec<(f64, f64)> = serde_json::from_value(values.clone()).with_context(|| name.to_owned())?;
    ensure!(!values.is_empty(), "{name} has no values");
    ensure!(values.is_sorted_by(|value, next| value.0 < next.0), "{name}: {values:?}");
    // Rank 1 sleeps for 20 ms in each step, and rank 0 waits.
    let (least, most) = if name == FIGURES[0] { (0.02, 2.0) } else { (0.0, 1.0) };
    ensure!(values.iter().all(|&(_, value)| (least..most).contains(&value)), "{name}: {values:?}");
    Ok(())
}

fn is_complete(by_name: &Value) -> anyhow::Result<()> {
    FIGURES.iter().try_for_each(|name| is_a_course(name, &by_name[name]))?;
    ensure!(UNKNOWN.iter().all(|name| by_name[name].is_null()), "{by_name:#}");
    Ok(())
}

/// The rows that the job logs itself keep their steps and stay whole, and ours join them.
fn joins_the_jobs_rows(rows: &Value) -> anyhow::Result<()> {
    let rows = rows.as_array().context("no rows")?;
    let own: Vec<u64> = rows.iter().filter_map(|row| row["own"].as_u64()).collect();
    ensure!(own.len() == rows.len() && own == (0..own.len() as u64).collect::<Vec<_>>(), "{own:?}");
    ensure!(rows.iter().all(|row| row["_step"].as_u64() == row["own"].as_u64().map(|own| 3 * own)));
    ensure!(rows.iter().all(|row| row["loss"].is_number()));
    let ours: Vec<&Value> = rows.iter().filter(|row| row["paceline/step"].is_number()).collect();
    for name in FIGURES {
        let course: Vec<_> = ours.iter().map(|row| (&row["paceline/step"], &row[name])).collect();
        is_a_course(name, &serde_json::to_value(course)?)?;
    }
    ensure!(ours.iter().any(|row| names_rank_1(&row["paceline/verdict"])), "{ours:#?}");
    Ok(())
}

fn names_rank_1(verdict: &Value) -> bool {
    verdict.as_str().is_some_and(|verdict| verdict.starts_with("Rank 1 "))
}

#[test]
fn figures_and_the_verdict_are_in_the_jobs_own_trackers() -> anyhow::Result<()> {
    if !TRACKERS.is_installed()? {
        return Ok(());
    }
    let found = found(&TRACKERS.program("python"))?;
    joins_the_jobs_rows(&found["wandb"])?;
    is_complete(&found["mlflow"])?;
    ensure!(names_rank_1(&found["mlflow_verdict"]), "{:#}", found["mlflow_verdict"]);
    is_complete(&found["tensorboard"])?;
    let texts = found["tensorboard_texts"].as_array().context("no texts")?;
    ensure!(texts.iter().any(names_rank_1), "{texts:#?}");
    let heard = found["function"].as_array().context("the function was not called")?;
    ensure!(heard.iter().any(|heard| names_rank_1(&heard[1]["paceline/verdict"])), "{heard:#?}");
    Ok(())
}
