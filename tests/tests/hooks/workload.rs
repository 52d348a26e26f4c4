//! A PyTorch job that states its workload has a throughput and a model FLOPs utilization, and one that states labels has them.

use anyhow::{Context as _, ensure};
use testkit::programs::{report, said};
use testkit::torch;

use crate::pytorch::{attached, result_of, run, script, torchrun};

#[test]
fn a_pytorch_job_that_states_its_workload_has_a_throughput_and_an_mfu() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let job = torchrun(&[&script("workload.py"), "150"]);
    let output = run(|| attached(data.path(), &job))?;
    ensure!(result_of(&output)? == "loss True", "{output:?}");
    let (_, complaints) = said(&output);
    for mistake in [
        "precision='float32' is not one of fp32",
        "samples_per_step='many' is not a number above 0",
        "label: key='my accuracy' does not have",
        "label: value='0,5' is longer than 256 bytes, or has commas",
    ] {
        ensure!(complaints.contains(mistake), "{complaints}");
    }
    let report = report(data.path(), "latest")?;
    ensure!(report["sample_unit"] == "rows" && report["batch"] == 32.0, "{report:#}");
    let attributes = report["attributes"].as_array().context("a report has attributes")?;
    let accuracy: Vec<_> = attributes.iter().filter(|attribute| attribute["name"] == "accuracy").collect();
    ensure!(accuracy.len() == 1 && accuracy[0]["value"] == "0.5", "{accuracy:?}");
    ensure!(
        accuracy[0]["kind"] == "label" && accuracy[0]["ranks"] == serde_json::json!([0, 1]),
        "{accuracy:?}"
    );
    let (throughput, used) =
        (report["throughput"].as_f64().unwrap_or(f64::NAN), &report["flops_utilization"]);
    let flops = used["model_flops_per_second"].as_f64().unwrap_or(f64::NAN);
    ensure!((flops / throughput / f64::from(6 * 4 * 512 * 512) - 1.0).abs() < 1e-9, "{used:#}");
    ensure!(used["model"].as_f64().is_some_and(|mfu| mfu > 0.001 && mfu < 1.0), "{used:#}");
    ensure!(
        used["hardware"]["missing"].as_str().is_some_and(|why| why.contains("recomputation")),
        "{used:#}"
    );
    ensure!(used["basis"].as_str().is_some_and(|basis| basis.contains("as the job measured")), "{used:#}");
    Ok(())
}
