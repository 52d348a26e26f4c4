//! Tests of the library that CUDA loads into every process that uses it. In jobs without NCCL the library reports
//! devices; in all other jobs it does nothing.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::ensure;
use serde_json::Value;
use testkit::collector::Collector;
use testkit::programs::{Running, Server, get_json, paceline, program, wait_until};
use testkit::{fake_gpu, nvidia};

/// Returns a command for a rank of a job, on a machine with these libraries.
fn job(libraries: &Path, more: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program("old_nccl_job"));
    command
        .args(more)
        .env("CUDA_INJECTION64_PATH", program("libpaceline_attach.so"))
        .env("LD_LIBRARY_PATH", libraries)
        .env("FAKEGPU_REAL_TIME", "1")
        .env("PACELINE_CUDA_HOOK_SECONDS", "0")
        .env_remove("VIRTUAL_ENV")
        .envs(variables.iter().copied());
    command
}

#[test]
fn a_job_without_nccl_shows_its_device_and_answers_bursts() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let names = ["libcuda.so.1", "libcupti.so.13", "libnvidia-ml.so.1"];
    let libraries = fake_gpu::installed_as(&names)?;
    let running = Command::new(program("paceline"))
        .args(["run", "--attach", "-n", "1", "--server", &server.address, "--"])
        .arg(program("old_nccl_job"))
        .args(["--alone", "--steps", "1200"])
        .env("LD_LIBRARY_PATH", libraries.path())
        .env("FAKEGPU_REAL_TIME", "1")
        .env("PACELINE_CUDA_HOOK_SECONDS", "1")
        .env_remove("VIRTUAL_ENV")
        .stdout(Stdio::null())
        .spawn();
    let mut running = Running(running?);
    let runs = format!("{}/api/v1/runs", server.address);
    let device = wait_until("a sample of its device", || {
        let id = get_json(&runs).ok()?[0]["run"].as_str()?.to_owned();
        get_json(&format!("{runs}/{id}/devices")).ok()?.as_array()?.first().cloned()
    })?;
    let name = device["sample"]["device"].as_str().unwrap_or_default();
    // No step is known, but the device is busy.
    wait_until("the run to be shown as running", || {
        (get_json(&runs).ok()?[0]["state"] == "running").then_some(())
    })?;
    ensure!(device["rank"] == 0 && name.ends_with("0000:01:00.0"), "{device}");
    // On a busy machine, the rank may answer later than the command waits.
    let found: Value = wait_until("a burst", || {
        let output = paceline(&["burst", "latest", "--server", &server.address, "--json"]).ok()?;
        serde_json::from_slice(&output.stdout).ok()
    })?;
    ensure!(found[0]["burst"]["outcome"]["kernels"][0]["name"] == "spin_ns", "{found}");
    ensure!(running.0.wait()?.success(), "the job failed");
    wait_until("the run's end", || {
        get_json(&runs).ok()?[0]["state"].as_str().filter(|state| *state == "completed").map(drop)
    })?;
    Ok(())
}

#[test]
fn only_one_process_of_a_rank_is_observed() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let libraries = fake_gpu::installed_as(&["libcuda.so.1", "libnvidia-ml.so.1"])?;
    let rank = [
        ("PACELINE_SERVER", server.address.as_str()),
        ("PACELINE_RUN_ID", "several"),
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
    ];
    let first = job(libraries.path(), &["--alone", "--steps", "100000"], &rank).stdout(Stdio::null()).spawn();
    let first = Running(first?);
    let devices = format!("{}/api/v1/runs/several/devices", server.address);
    wait_until("the first process to be observed", || get_json(&devices).ok()?.as_array()?.first().cloned())?;
    // The second process runs for three seconds and reports to no server.
    let collector = Collector::start()?;
    let [_, others @ ..] = rank;
    let elsewhere = [&[("PACELINE_SERVER", collector.address.as_str())][..], &others].concat();
    let second = job(libraries.path(), &["--alone", "--steps", "300"], &elsewhere).output()?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    ensure!(second.status.success() && said.is_empty(), "{said}");
    ensure!(collector.batches.try_iter().next().is_none(), "the second process is observed too");
    drop(first);
    // A process without a rank belongs to no job, and a process without a server is not observed.
    for variables in [&elsewhere[..2], &rank[2..]] {
        let output = job(libraries.path(), &["--alone", "--steps", "100"], variables).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success() && said.is_empty(), "{said}");
        ensure!(String::from_utf8_lossy(&output.stdout).contains("100 steps"), "it lacks steps");
    }
    ensure!(collector.batches.try_iter().next().is_none(), "a process without a rank is observed");
    Ok(())
}

#[test]
fn the_real_driver_loads_the_library_and_a_process_without_a_device_continues() -> anyhow::Result<()> {
    let Some(driver) = nvidia::driver()? else { return Ok(()) };
    let script = "import ctypes, os, signal, sys, time
cuda = ctypes.CDLL('libcuda.so.1')
print('cuInit', cuda.cuInit(0))
loaded = 'libpaceline_attach.so' in open('/proc/self/maps').read()
tasks = [open(f'/proc/self/task/{task}/status').read() for task in os.listdir('/proc/self/task')]
[hook] = [dict(line.split(':\\t') for line in task.splitlines()) for task in tasks if 'paceline-cuda' in task]
blocks = lambda signal: int(hook['SigBlk'], 16) >> signal - 1 & 1
print('loaded', loaded, 'signals', *map(blocks, (signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM, signal.SIGSEGV)))
sys.stdout.flush()
if os.fork() == 0:
    sys.exit(0)
print('child', os.wait()[1])
time.sleep(1)";
    let output = Command::new("timeout")
        .args(["20", "python3", "-c", script])
        .env("CUDA_INJECTION64_PATH", program("libpaceline_attach.so"))
        .env("LD_LIBRARY_PATH", driver)
        .env("PACELINE_CUDA_HOOK_SECONDS", "0")
        .env("PACELINE_SERVER", "http://127.0.0.1:9")
        .env("PACELINE_RUN_ID", "no-device")
        .envs([("RANK", "0"), ("WORLD_SIZE", "1")])
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && complaints.is_empty(), "{:?}: {said}{complaints}", output.status);
    // On a machine with a GPU, cuInit returns 0.
    ensure!(
        said.contains("cuInit ") && said.contains("loaded True signals 1 1 1 0") && said.contains("child 0"),
        "{said}"
    );
    Ok(())
}
