//! `cargo xtask gpu`: the checks that need a GPU. They run on this machine, and are packed for another.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::system::{Profile, cargo, root, step};
use crate::web;

/// The programs and libraries that `gpu/accept.sh` uses, in addition to the job.
const PROGRAMS: [&str; 4] = ["accept", "paceline", "libpaceline_attach.so", "libpaceline_python.so"];
/// The training job, which uses candle and is built for GPUs.
const JOB: &str = "char_lm";
/// The largest total size that is easy to copy to another machine, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// The script's exit code if there is no GPU.
const SKIPPED: i32 = 77;
/// The compute capability of the oldest GPUs that the job's kernels support (Ampere). Newer GPUs translate the kernels.
const CAPABILITY: &str = "80";

/// Builds and packs the programs, then runs the checks.
pub fn run() -> anyhow::Result<()> {
    // The server embeds the page.
    web::run(web::Size::Small)?;
    step("building", &mut Profile::Release.build(&[]))?;
    let job = job()?;
    let packed = root().join("target/gpu");
    if packed.exists() {
        std::fs::remove_dir_all(&packed)?;
    }
    std::fs::create_dir_all(&packed)?;
    let mut bytes = 0;
    for program in PROGRAMS {
        let from = Profile::Release.folder().join(program);
        bytes += std::fs::copy(&from, packed.join(program))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    if let Some(job) = job {
        bytes += compress(&job, &packed.join(JOB).with_extension("gz"))?;
    }
    ensure!(bytes <= MAX_BYTES, "the packed programs have {bytes} bytes; the limit is {MAX_BYTES}");
    eprintln!(
        "   packed in target/gpu, {:.1} MiB; to check another machine, copy it and gpu/ there and run gpu/accept.sh",
        bytes as f64 / f64::from(1 << 20)
    );
    accept(&packed, &root().join("benches/results"))
}

/// Compresses a program and returns the number of bytes written. candle's kernels for quantized models are always
/// included, and they compress well.
fn compress(from: &Path, to: &Path) -> anyhow::Result<u64> {
    let program = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    let mut packer = GzEncoder::new(File::create(to)?, Compression::default());
    packer.write_all(&program)?;
    Ok(packer.finish()?.metadata()?.len())
}

/// Builds the job for GPUs with a toolkit from the Python package index, which takes about ten minutes the first time.
/// Returns `None`, with the reason on standard error, if the toolkit is not available.
fn job() -> anyhow::Result<Option<PathBuf>> {
    eprintln!("\n== CUDA's compiler");
    let output = Command::new(Profile::Release.folder().join("cuda_toolkit"))
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if output.status.code() == Some(SKIPPED) {
        return Ok(None);
    }
    ensure!(output.status.success(), "CUDA's compiler: failed ({})", output.status);
    let toolkit = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    // A separate target folder, because tests and the demo use the same program built without GPUs.
    let target = root().join("target/cuda");
    let mut build = cargo();
    build.args(["build", "--release", "--package", "paceline-examples", "--bin", JOB, "--features", "cuda"]);
    step("building the job for GPUs", with_toolkit(&toolkit, &mut build)?.arg("--target-dir").arg(&target))?;
    Ok(Some(target.join("release").join(JOB)))
}

/// Makes a command check the code for GPUs as well, with a stub in place of CUDA's compiler.
pub fn with_stub(command: &mut Command) -> anyhow::Result<&mut Command> {
    let stub = root().join("target/nvcc");
    std::fs::create_dir_all(stub.join("bin"))?;
    std::fs::copy(root().join("xtask/src/nvcc.sh"), stub.join("bin/nvcc"))?;
    with_toolkit(&stub, command.args(["--features", "paceline-examples/cuda"]))
}

/// Makes a command build with the toolkit in this folder and no other.
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

/// Runs the checks. Without a GPU, they only print a line that says so.
pub fn accept(programs: &Path, results: &Path) -> anyhow::Result<()> {
    eprintln!("\n== GPU checks");
    let script = root().join("gpu/accept.sh");
    let mut command = Command::new(script);
    let status = command.arg(results).env("PACELINE_PROGRAMS", programs).status()?;
    ensure!(status.success() || status.code() == Some(SKIPPED), "GPU checks: failed ({status})");
    Ok(())
}
