//! Tests of the library as a receiver of NVTX ranges. They use the real libnccl of two releases, which marks its calls
//! even without a GPU, and a program that is compiled with NVIDIA's NVTX headers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use serde_json::Value;
use testkit::headers::{self, compile};
use testkit::nvidia;
use testkit::programs::{bucket_sizes, gap, program, report};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hooks/nvtx_job.c");

/// Compiles the job. Returns `None` if the package index cannot be reached.
fn job(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let Some(nvtx) = nvidia::wheel("nvidia-nvtx-cu12", "12.8.90")? else { return Ok(None) };
    let program = folder.join("nvtx_job");
    let include = headers::folder_of(&nvtx, "nvtx3/nvToolsExt.h")?;
    compile(Path::new(SOURCE), &program, [include.as_path()].into_iter())?;
    Ok(Some(program))
}

/// Runs the job observed. Returns its report, the sizes of the collectives of one step, and its output.
fn observed(
    job: &Path,
    nccl: &Path,
    variables: &[(&str, &str)],
) -> anyhow::Result<(Value, Vec<u64>, String)> {
    let data = tempfile::tempdir()?;
    let output = Command::new(program("paceline"))
        .args(["run", "--attach", "-n", "2", "--data"])
        .arg(data.path())
        .arg("--")
        .args([job, nccl])
        .arg("150")
        .envs(variables.iter().copied())
        .env_remove("PACELINE_SERVER")
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{printed}{complaints}");
    if std::fs::read_dir(data.path().join("runs"))?.next().is_none() {
        return Ok((Value::Null, Vec::new(), printed));
    }
    let report = report(data.path(), "latest")?;
    let sizes = bucket_sizes(data.path())?;
    Ok((report, sizes, printed))
}

#[test]
fn calls_of_the_real_nccl_and_ranges_of_the_job_become_steps() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(job) = job(folder.path())? else { return Ok(()) };
    for (package, release) in [("nvidia-nccl-cu12", "2.20.5"), ("nvidia-nccl-cu13", "2.28.9")] {
        let Some(wheel) = nvidia::wheel(package, release)? else { return Ok(()) };
        let nccl = wheel.join("nvidia/nccl/lib/libnccl.so.2");
        let (report, sizes, printed) = observed(&job, &nccl, &[])?;
        ensure!(printed.contains("if the job marks them with NVTX ranges"), "{printed}");
        let steps = report["steps"].as_f64().unwrap_or_default();
        ensure!(steps > 50.0, "NCCL {release}: {report}\n{printed}");
        let step = report["local_step_time_nanos"]["median"].as_f64().unwrap_or_default() / 1e6;
        ensure!((20.0..40.0).contains(&step), "NCCL {release}: a step of {step} ms");
        ensure!(sizes == [4 << 16, 4 << 18, 4 << 14], "NCCL {release}: {sizes:?}");
        // The times of collectives are unknown, so the report has no figures that depend on them.
        let why = gap(&report, "buckets").unwrap_or_default();
        ensure!(report["buckets"] == serde_json::json!([]) && why.contains("not when they ran"), "{report}");
        for figure in ["overlap_ratio", "what_if"] {
            let why = report[figure]["missing"].as_str().unwrap_or_default();
            ensure!(why.contains("not when they ran"), "{figure}: {report}");
        }
        for rank in 0..2 {
            let ledger = &report["ledger"][rank];
            let input = ledger["input_nanos"].as_f64().unwrap_or_default() / steps / 1e6;
            ensure!((5.0..9.0).contains(&input), "NCCL {release}: {input} ms of input: {ledger}");
        }
    }
    Ok(())
}

#[test]
fn another_receiver_of_nvtx_ranges_is_not_replaced() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(job) = job(folder.path())? else { return Ok(()) };
    let Some(wheel) = nvidia::wheel("nvidia-nccl-cu13", "2.28.9")? else { return Ok(()) };
    let nccl = wheel.join("nvidia/nccl/lib/libnccl.so.2");
    let other = [("NVTX_INJECTION64_PATH", "/opt/other/libreceiver.so")];
    let (report, _, printed) = observed(&job, &nccl, &other)?;
    ensure!(printed.contains("NVTX_INJECTION64_PATH is /opt/other/libreceiver.so"), "{printed}");
    ensure!(report.is_null(), "the job was observed: {report}");
    Ok(())
}
