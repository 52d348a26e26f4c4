//! Tests with real PyTorch: a job that its launcher restarts is one run.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::programs::report;
use testkit::torch::Torch;

use super::pytorch::{attached, run, script};

#[test]
fn the_steps_of_a_restarted_job_follow_those_of_its_first_attempt() -> anyhow::Result<()> {
    let torch = Torch::newest();
    if !torch.is_installed()? {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let torchrun = torch.program("torchrun").to_string_lossy().into_owned();
    let words = [torchrun, "--nproc-per-node=2".into(), "--max-restarts=1".into(), script("restarts.py")];
    run(|| attached(data.path(), &words))?;
    let report = report(data.path(), "latest")?;
    ensure!(report["state"] == "completed", "{report:#}");
    let attempts = report["goodput"]["attempts"].as_array().with_context(|| format!("{report:#}"))?;
    let steps: Vec<(u64, u64)> = attempts.iter().filter_map(steps).collect();
    // A job is observed from the step on in which its collectives repeat.
    let [(_, last), (first, end)] = steps[..] else { anyhow::bail!("{attempts:#?}") };
    ensure!(last < first && end - first > 20, "{attempts:#?}");
    ensure!(report["goodput"]["repeated_steps"] == 0, "{:#}", report["goodput"]);
    ensure!(report["goodput"]["uses"]["recovery"].as_u64() > Some(0), "{:#}", report["goodput"]);
    ensure!(report["step_range"][1] == end, "{end}: {:#}", report["step_range"]);
    Ok(())
}

fn steps(attempt: &Value) -> Option<(u64, u64)> {
    Some((attempt["steps"][0].as_u64()?, attempt["steps"][1].as_u64()?))
}
