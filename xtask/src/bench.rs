//! `cargo xtask bench`: measurements, with their raw results kept under `benches/results`.

use anyhow::bail;

use crate::system::{cargo, ensure_tools, programs, step};
use crate::test::{BROWSER, MONITORING};
use crate::web;

const BENCHES: &str = "usage: cargo xtask bench NAME...

  record     nanoseconds of one `record` and of one whole instrumented step
  overhead   instrumented against uninstrumented training runs, in pairs
  faults     planted faults in real runs: right rank, right cause, what cost
  healthy    an hour of a healthy job under Prometheus and Alertmanager: no alert, then one
  wire       bytes and speed of batches and segments
  pytorch    a DDP job over gloo, observed under attach now and then
  page       gradient to pixel, and frames at 1,024 ranks, in a real browser
  ingest     batches over HTTP into a real server: records/s, answers, memory
  runs       10,001 small runs on one server: memory, open files, its start
  export     a million slices in each format, from memory and from disk
  callbacks  what NCCL's threads pay for being observed
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
            "faults" => faults()?,
            "healthy" => healthy()?,
            "wire" => wire()?,
            "pytorch" => pytorch()?,
            "page" => page()?,
            "export" => export()?,
            "ingest" => ingest()?,
            "runs" => runs()?,
            "callbacks" => callbacks()?,
            "allreduce" => allreduce()?,
            "all" => {
                let all = [record, wire, export, ingest, runs, callbacks, allreduce, overhead, faults];
                all.iter().try_for_each(|bench| bench())?;
            }
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

fn callbacks() -> anyhow::Result<()> {
    bench("paceline-doors", "callbacks")
}

fn export() -> anyhow::Result<()> {
    bench("paceline-tests", "export")
}

fn ingest() -> anyhow::Result<()> {
    step("building", cargo().args(["build", "--release", "--package", "paceline"]))?;
    bench("paceline-tests", "ingest")
}

fn runs() -> anyhow::Result<()> {
    step("building", cargo().args(["build", "--release", "--package", "paceline"]))?;
    bench("paceline-tests", "runs")
}

fn allreduce() -> anyhow::Result<()> {
    bench("paceline-reducer", "all_reduce")
}

fn overhead() -> anyhow::Result<()> {
    measure_jobs("overhead")
}

fn faults() -> anyhow::Result<()> {
    measure_jobs("faults")
}

fn healthy() -> anyhow::Result<()> {
    ensure_tools(&MONITORING)?;
    measure_jobs("healthy")
}

fn pytorch() -> anyhow::Result<()> {
    measure_jobs("pytorch_overhead")
}

fn page() -> anyhow::Result<()> {
    ensure_tools(&BROWSER)?;
    web::run()?;
    measure_jobs("page")
}

/// Runs a program that measures whole jobs, after building all that it starts.
fn measure_jobs(program: &str) -> anyhow::Result<()> {
    let packages = ["paceline", "paceline-examples", "paceline-tests"].map(|package| ["--package", package]);
    step("building", cargo().args(["build", "--release"]).args(packages.as_flattened()))?;
    step(program, &mut std::process::Command::new(programs().join(program)))
}
