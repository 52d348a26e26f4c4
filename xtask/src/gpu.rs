//! `cargo xtask gpu`: the checks that need a GPU, here or packed up for another machine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::system::{cargo, programs, root, step};

/// What `gpu/accept.sh` starts or loads.
const PROGRAMS: [&str; 3] = ["accept", "paceline", "libpaceline_agent.so"];
/// What is easily carried to another machine.
const MOST_BYTES: u64 = 64 << 20;
/// The script's exit code where there is no GPU.
const SKIPPED: i32 = 77;

/// Builds and packs the programs, then runs the checks.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    if let Some(other) = arguments.first() {
        bail!("gpu takes no arguments, not even {other}");
    }
    let packages = ["paceline", "paceline-doors", "paceline-tests"].map(|package| ["--package", package]);
    step("building", cargo().args(["build", "--release"]).args(packages.as_flattened()))?;
    let packed = root().join("target/gpu");
    std::fs::create_dir_all(&packed)?;
    let mut bytes = 0;
    for program in PROGRAMS {
        let from = programs().join(program);
        bytes += std::fs::copy(&from, packed.join(program))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    ensure!(bytes <= MOST_BYTES, "the programs have {bytes} bytes, more than {MOST_BYTES}");
    eprintln!(
        "   packed in target/gpu, {:.1} MiB: to check another machine, bring it and gpu/ there and run gpu/accept.sh",
        bytes as f64 / f64::from(1 << 20)
    );
    accept(&packed, &root().join("benches/results"))
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
