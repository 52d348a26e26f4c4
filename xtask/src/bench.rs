//! `cargo xtask bench`: measurements. Raw results are stored under `benches/results`.

use anyhow::bail;

use crate::system::{cargo, ensure_tools, programs, step};
use crate::test::{BROWSER, MONITORING};
use crate::web;

const BENCHES: &str = "usage: cargo xtask bench NAME...

  record     time of one `record` and of a complete instrumented step
  overhead   paired training runs, with and without instrumentation
  faults     planted faults in real runs: is the rank right, is the cause right, what does it cost
  healthy    an hour of a healthy job under Prometheus and Alertmanager: no alert, then one for a planted fault
  wire       size and speed of batches and segments
  pytorch    a DDP job over gloo, with the observation by attach turned on and off
  page       time from gradient to pixel, and frame times at 1,024 ranks, in a real browser
  ingest     batches over HTTP into a real server: records/s, response times, memory
  runs       10,001 small runs on one server: memory, open files, startup time
  export     a million slices in each format, from memory and from disk
  callbacks  the cost of observation for NCCL's threads
  allreduce  the ring all-reduce at several sizes and numbers of ranks
  all        all but healthy, pytorch and page";

/// Runs the named benches.
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
            other => bail!("unknown bench: {other}\n{BENCHES}"),
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
    bench("paceline-attach", "callbacks")
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

/// Builds all programs that a measurement of whole jobs starts, then runs it.
fn measure_jobs(program: &str) -> anyhow::Result<()> {
    let packages = ["paceline", "paceline-examples", "paceline-tests"].map(|package| ["--package", package]);
    step("building", cargo().args(["build", "--release"]).args(packages.as_flattened()))?;
    step(program, &mut std::process::Command::new(programs().join(program)))
}
