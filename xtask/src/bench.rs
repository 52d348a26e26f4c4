//! `cargo xtask bench`: measurements, with their raw results kept under `benches/results`.

use anyhow::bail;

use crate::system::{cargo, programs, step};

const BENCHES: &str = "usage: cargo xtask bench NAME...

  record     nanoseconds of one `record` and of one whole instrumented step
  overhead   instrumented against uninstrumented training runs, in pairs
  wire       bytes and speed of batches and segments
  allreduce  the ring all-reduce over sizes and ranks
  all        all of them";

/// Runs the benches that are named.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    if arguments.is_empty() {
        bail!("{BENCHES}");
    }
    for name in arguments {
        match name.as_str() {
            "record" => record()?,
            "overhead" => overhead()?,
            "wire" => wire()?,
            "allreduce" => allreduce()?,
            "all" => [record, wire, allreduce, overhead].iter().try_for_each(|bench| bench())?,
            other => bail!("no bench {other}\n{BENCHES}"),
        }
    }
    Ok(())
}

fn bench(package: &str, name: &str) -> anyhow::Result<()> {
    step(name, cargo().args(["bench", "--profile", "release", "--package", package, "--bench", name]))
}

fn record() -> anyhow::Result<()> {
    bench("paceline-agent", "record")
}

fn wire() -> anyhow::Result<()> {
    bench("paceline-tests", "wire")
}

fn allreduce() -> anyhow::Result<()> {
    bench("paceline-reducer", "all_reduce")
}

fn overhead() -> anyhow::Result<()> {
    let build = [
        "build",
        "--release",
        "--package",
        "paceline",
        "--package",
        "paceline-examples",
        "--package",
        "paceline-tests",
    ];
    step("building", cargo().args(build))?;
    step("overhead", &mut std::process::Command::new(programs().join("overhead")))
}
