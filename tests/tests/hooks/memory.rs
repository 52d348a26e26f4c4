//! A test of what PyTorch's allocator reports of the memory of CUDA devices, and what the devices report of their clocks, on stand-ins
//! for the devices.

use anyhow::{Context as _, ensure};
use serde_json::json;
use testkit::fake_gpu;
use testkit::programs::{Server, get_json, report};
use testkit::torch;

use super::pytorch::{attached, run, script, torchrun};

const GIB: u64 = 1 << 30;

#[test]
fn the_figures_of_a_device_and_its_allocator_explain_slow_compute() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let libraries = fake_gpu::installed_as(&["libcuda.so.1", "libnvidia-ml.so.1"])?;
    let job = torchrun(&[&script("memory.py"), "200"]);
    run(|| {
        let mut command = attached(data.path(), &job);
        command.env("LD_LIBRARY_PATH", libraries.path());
        command
    })?;
    let report = report(data.path(), "latest")?;
    let verdicts = report["verdicts"].as_array().into_iter().flatten();
    let slow = verdicts.into_iter().find(|verdict| verdict["culprit"] == json!({ "rank": 1 }));
    let slow = slow.with_context(|| format!("rank 1 has no verdict: {report:#}"))?;
    let because = "Rank 1 computes more slowly because its GPU lowered its clock (temperature), which costs ";
    ensure!(slow["sentence"].as_str().is_some_and(|said| said.starts_with(because)), "{slow:#}");
    let evidence = slow["evidence"].as_array().into_iter().flatten().filter_map(|line| line.as_str());
    let found = evidence.into_iter().find(|line| line.starts_with("PyTorch's allocator ran out of memory"));
    let found = found.with_context(|| format!("{slow:#}"))?;
    ensure!(
        found.contains("on its GPU") && found.ends_with("on other ranks, this did not happen"),
        "{found}"
    );

    let server = Server::start(data.path())?;
    let name = report["run"].as_str().context("the report names no run")?;
    let devices = get_json(&format!("{}/api/v1/runs/{name}/devices", server.address))?;
    for (rank, device) in devices.as_array().context("no list")?.iter().enumerate() {
        let figures = &device["sample"]["figures"];
        ensure!(
            figures["allocated_bytes"] == 3 * GIB && figures["allocated_peak_bytes"] == 5 * GIB,
            "{device}"
        );
        ensure!(
            figures["reserved_bytes"] == 6 * GIB && figures["inactive_split_bytes"] == GIB / 2,
            "{device}"
        );
        let retries = figures["allocation_retries"].as_u64().context("no retries")?;
        ensure!(if rank == 1 { retries > 50 } else { retries == 0 }, "rank {rank}: {device}");
        ensure!(figures["out_of_memory_errors"] == 0, "{device}");
    }
    ensure!(devices.as_array().is_some_and(|devices| devices.len() == 2), "{devices}");
    Ok(())
}
