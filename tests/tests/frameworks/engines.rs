//! Frameworks that `cargo xtask test --all-frameworks` tests: DeepSpeed, Ray Train and torchft.

use std::process::{Command, Stdio};

use paceline::launch::python::Package;
use testkit::frameworks::{DEEPSPEED, RAY, TORCHFT};
use testkit::programs::{Running, Server, get_json, program, report, wait_until};

use super::job::{Job, is_wanted, run, script};

const PHASES: [&str; 4] = ["input", "forward", "backward", "optimizer"];

fn deepspeed(job: &Job) -> anyhow::Result<()> {
    if !is_wanted(DEEPSPEED)? {
        return Ok(());
    }
    let report = job.run(&DEEPSPEED.program("python"))?;
    job.is_understood(&report)?;
    Job::has_phases(&report, &PHASES)
}

#[test]
fn deepspeed_zero_1() -> anyhow::Result<()> {
    deepspeed(&Job { script: "deepspeed_zero.py", steps: 300, more: &["1"], observed: 0.7 })
}

#[test]
fn deepspeed_zero_2() -> anyhow::Result<()> {
    deepspeed(&Job { script: "deepspeed_zero.py", steps: 300, more: &["2"], observed: 0.7 })
}

/// ZeRO-3 uses a second group at its start only, and the steps of that one are awaited for half a minute.
#[test]
fn deepspeed_zero_3() -> anyhow::Result<()> {
    deepspeed(&Job { script: "deepspeed_zero.py", steps: 1_200, more: &["3"], observed: 0.2 })
}

#[test]
fn ray_train() -> anyhow::Result<()> {
    if !is_wanted(RAY)? {
        return Ok(());
    }
    let job = Job { script: "ray_train.py", steps: 300, more: &[], observed: 0.7 };
    let (data, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let server = Server::start(data.path())?;
    // As if the package were installed.
    let package = Package::copy(&program("libpaceline_python.so"))?;
    let site = std::path::PathBuf::from(package.site());
    let packages = site.ancestors().nth(2).unwrap_or(&site).to_string_lossy();
    let library = program("libpaceline_attach.so");
    let (script, steps, folder) =
        (script(job.script), job.steps.to_string(), folder.path().to_string_lossy());
    let printed = run(
        &RAY.program("python"),
        &[&script, &steps, &folder, &server.address, "of-ray"],
        &[
            ("PACELINE_OVERHEAD_BUDGET", "100"),
            ("PACELINE_AGENT_LIBRARY", &library.to_string_lossy()),
            ("PYTHONPATH", &packages),
        ],
    )?;
    anyhow::ensure!(printed.contains(&format!("steps {steps}")), "{printed}");
    let report = get_json(&format!("{}/api/v1/runs/of-ray?window=all", server.address))?;
    job.is_understood(&report)?;
    Job::has_phases(&report, &PHASES)
}

/// Two replica groups of one process each, which no launcher counts.
#[test]
fn torchft() -> anyhow::Result<()> {
    if !is_wanted(TORCHFT)? {
        return Ok(());
    }
    let job = Job { script: "torchft_groups.py", steps: 300, more: &[], observed: 0.7 };
    let mut lighthouse = Command::new(TORCHFT.program("torchft_lighthouse"));
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = format!("127.0.0.1:{port}");
    lighthouse.args(["--min_replicas", "2", "--bind", &address]).stdout(Stdio::null()).stderr(Stdio::null());
    let _lighthouse = Running(lighthouse.spawn()?);
    wait_until("the lighthouse", || std::net::TcpStream::connect(&address).ok())?;
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let (script, steps, python) =
        (script(job.script), job.steps.to_string(), TORCHFT.program("python").to_string_lossy().into_owned());
    let (at, lighthouse) = (&server.address, format!("http://{address}"));
    let both: Vec<_> = ["0", "1"]
        .map(|group| {
            let start = ["attach", "--server", at, "--run-id", "of-torchft", "--", &python];
            let arguments = [&start[..], &[&script, &steps, group, &lighthouse]].concat();
            let mut command = Command::new(program("paceline"));
            command.args(arguments).env("PACELINE_OVERHEAD_BUDGET", "100");
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Running)
        })
        .into_iter()
        .collect::<Result<_, _>>()?;
    for mut group in both {
        anyhow::ensure!(group.0.wait()?.success());
    }
    drop(server);
    let report = report(data.path(), "of-torchft")?;
    job.is_understood(&report)?;
    Job::has_phases(&report, &PHASES)
}
