//! Tests with real PyTorch: a job that its launcher restarts is one run.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::programs::report;
use testkit::torch::Torch;

use super::pytorch::{attached, run, script};

/// Runs a job that its launcher restarts, in which rank 0 waits before its first step. Returns its report, and the first and the last
/// step of both attempts.
fn restarted(torch: &Torch, more: &[&str]) -> anyhow::Result<(Value, [(u64, u64); 2])> {
    let data = tempfile::tempdir()?;
    let torchrun = torch.program("torchrun").to_string_lossy().into_owned();
    let words = [torchrun, "--nproc-per-node=2".into(), "--max-restarts=1".into(), script("restarts.py")];
    let words: Vec<String> = words.into_iter().chain(more.iter().map(|&word| word.to_owned())).collect();
    run(|| attached(data.path(), &words))?;
    let report = report(data.path(), "latest")?;
    ensure!(report["state"] == "completed", "{report:#}");
    ensure!(awaited(data.path())? == [true, false], "rank 0 began to wait before its first step, and ended");
    let attempts = report["goodput"]["attempts"].as_array().with_context(|| format!("{report:#}"))?;
    let steps: Vec<(u64, u64)> = attempts.iter().filter_map(steps).collect();
    let steps = steps.try_into().map_err(|_| anyhow::anyhow!("{attempts:#?}"))?;
    Ok((report, steps))
}

#[test]
fn steps_after_the_checkpoint_that_a_job_resumes_are_repeated() -> anyhow::Result<()> {
    let torch = Torch::newest();
    if !torch.is_installed()? {
        return Ok(());
    }
    // The first attempt does steps 0 to 199, and the second one 120 to 269.
    let (report, [(_, last), (first, end)]) = restarted(&torch, &["120"])?;
    let goodput = &report["goodput"];
    ensure!((last, end) == (199, 269) && (120..=199).contains(&first), "{goodput:#}");
    ensure!(goodput["repeated_steps"] == 80, "{goodput:#}");
    ensure!(goodput["uses"]["repeated"].as_u64() > Some(0), "{goodput:#}");
    ensure!(report["step_range"][1] == 269, "{:#}", report["step_range"]);
    Ok(())
}

#[test]
fn the_steps_of_a_restarted_job_follow_those_of_its_first_attempt() -> anyhow::Result<()> {
    let torch = Torch::newest();
    if !torch.is_installed()? {
        return Ok(());
    }
    // A job is observed from the step on in which its collectives repeat.
    let (report, [(_, last), (first, end)]) = restarted(&torch, &[])?;
    let attempts = &report["goodput"]["attempts"];
    ensure!(last < first && end - first > 20, "{attempts:#?}");
    ensure!(report["goodput"]["repeated_steps"] == 0, "{:#}", report["goodput"]);
    ensure!(report["goodput"]["uses"]["recovery"].as_u64() > Some(0), "{:#}", report["goodput"]);
    ensure!(report["step_range"][1] == end, "{end}: {:#}", report["step_range"]);
    Ok(())
}

/// Returns, of each note on what a rank waits in, in the order of time, whether it waits.
fn awaited(data: &Path) -> anyhow::Result<Vec<bool>> {
    let pattern = data.join("runs/*/segment-*/notes.json");
    let mut awaited = Vec::new();
    for file in glob::glob(&pattern.to_string_lossy())? {
        awaited.extend(waits(&serde_json::from_slice(&std::fs::read(file?)?)?));
    }
    Ok(awaited)
}

fn waits(value: &Value) -> Vec<bool> {
    match value {
        Value::Object(note) if note.get("note").is_some_and(|kind| kind == "waits") => {
            vec![!note["waiting"].is_null()]
        }
        Value::Object(fields) => fields.values().flat_map(waits).collect(),
        Value::Array(items) => items.iter().flat_map(waits).collect(),
        _ => Vec::new(),
    }
}

fn steps(attempt: &Value) -> Option<(u64, u64)> {
    Some((attempt["steps"][0].as_u64()?, attempt["steps"][1].as_u64()?))
}
