//! `cargo xtask gpu`: the checks that need a GPU, here or packed up for another machine.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::system::{cargo, programs, root, step};

/// What `gpu/accept.sh` starts or loads, beside the job.
const PROGRAMS: [&str; 3] = ["accept", "paceline", "libpaceline_agent.so"];
/// A training job on candle, built for GPUs.
const JOB: &str = "char_lm";
/// What is easily carried to another machine.
const MOST_BYTES: u64 = 64 << 20;
/// The script's exit code where there is no GPU.
const SKIPPED: i32 = 77;
/// The oldest GPUs that the job's kernels are good for (Ampere): newer ones translate them.
const CAPABILITY: &str = "80";

/// Builds and packs the programs, then runs the checks.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    if let Some(other) = arguments.first() {
        bail!("gpu takes no arguments, not even {other}");
    }
    let packages = ["paceline", "paceline-doors", "paceline-tests"].map(|package| ["--package", package]);
    step("building", cargo().args(["build", "--release"]).args(packages.as_flattened()))?;
    let job = job()?;
    let packed = root().join("target/gpu");
    if packed.exists() {
        std::fs::remove_dir_all(&packed)?;
    }
    std::fs::create_dir_all(&packed)?;
    let mut bytes = 0;
    for program in PROGRAMS {
        let from = programs().join(program);
        bytes += std::fs::copy(&from, packed.join(program))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    if let Some(job) = job {
        bytes += compress(&job, &packed.join(JOB).with_extension("gz"))?;
    }
    ensure!(bytes <= MOST_BYTES, "the programs have {bytes} bytes, more than {MOST_BYTES}");
    eprintln!(
        "   packed in target/gpu, {:.1} MiB: to check another machine, bring it and gpu/ there and run gpu/accept.sh",
        bytes as f64 / f64::from(1 << 20)
    );
    accept(&packed, &root().join("benches/results"))
}

/// Kernels for quantised models, which are in candle whether they are used or not, compress well; the bytes written.
fn compress(from: &Path, to: &Path) -> anyhow::Result<u64> {
    let program = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    let mut packer = GzEncoder::new(File::create(to)?, Compression::default());
    packer.write_all(&program)?;
    Ok(packer.finish()?.metadata()?.len())
}

/// Builds the job for GPUs, by a toolkit from the Python package index: in ten minutes or so, the first time. `None`, with
/// the reason on standard error, where that cannot be had.
fn job() -> anyhow::Result<Option<PathBuf>> {
    eprintln!("\n== CUDA's compiler");
    let output =
        Command::new(programs().join("cuda_toolkit")).stderr(std::process::Stdio::inherit()).output()?;
    if output.status.code() == Some(SKIPPED) {
        return Ok(None);
    }
    ensure!(output.status.success(), "CUDA's compiler: failed ({})", output.status);
    let toolkit = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    // A folder of its own: the same program without GPUs is what tests and the demo start.
    let target = root().join("target/cuda");
    let mut build = cargo();
    build.args(["build", "--release", "--package", "paceline-examples", "--bin", JOB, "--features", "cuda"]);
    step("building the job for GPUs", with_toolkit(&toolkit, &mut build)?.arg("--target-dir").arg(&target))?;
    Ok(Some(target.join("release").join(JOB)))
}

/// Checks Rust's side of the job for GPUs, with a stand-in for CUDA's compiler.
pub fn check_job(deny: &[&str]) -> anyhow::Result<()> {
    let stand_in = root().join("target/nvcc");
    let compiler = stand_in.join("bin/nvcc");
    std::fs::create_dir_all(stand_in.join("bin"))?;
    std::fs::copy(root().join("xtask/src/nvcc.sh"), &compiler)?;
    let mut check = cargo();
    check.args(["clippy", "--release", "--package", "paceline-examples", "--features", "cuda"]).args(deny);
    step("lints, jobs on GPUs", with_toolkit(&stand_in, &mut check)?)
}

/// Lets a command build with the toolkit in this folder, and no other.
fn with_toolkit<'a>(toolkit: &Path, command: &'a mut Command) -> anyhow::Result<&'a mut Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(toolkit.join("bin")).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(path)?).env("CUDA_COMPUTE_CAP", CAPABILITY);
    command.env("NVCC", toolkit.join("bin/nvcc"));
    for variable in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"] {
        command.env(variable, toolkit);
    }
    Ok(command)
}

/// Runs the checks; without a GPU that is a line that says so.
pub fn accept(programs: &Path, results: &Path) -> anyhow::Result<()> {
    eprintln!("\n== GPU checks");
    let script = root().join("gpu/accept.sh");
    let mut command = Command::new(script);
    let status = command.arg(results).env("PACELINE_PROGRAMS", programs).status()?;
    ensure!(status.success() || status.code() == Some(SKIPPED), "GPU checks: failed ({status})");
    Ok(())
}
