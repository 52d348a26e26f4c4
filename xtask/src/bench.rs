//! `cargo xtask bench`: measurements. Raw results are stored under `benches/results`.

use crate::system::{BROWSER, Profile, cargo, ensure_tools, step};
use crate::test::MONITORING;
use crate::web;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Bench {
    /// Time of one `record` and of a complete instrumented step
    Record,
    /// Paired training runs, with and without instrumentation
    Overhead,
    /// Planted faults in real runs: is the rank right, is the cause right, what does it cost
    Faults,
    /// Predicted efficiencies against those of simulated jobs on 1 to 1,024 ranks
    Predict,
    /// What-ifs against real runs over networks whose bandwidth and latency the kernel limits
    WhatIf,
    /// An hour of a healthy job under Prometheus and Alertmanager: no alert, then one for a planted fault
    Healthy,
    /// The cost of replaying a step, by its number of spans
    Replay,
    /// An import of traces: processor time, memory and time, against HolisticTraceAnalysis and json.load
    Import,
    /// Size and speed of batches and segments
    Wire,
    /// A DDP job over gloo: alone, observed by Paceline, and observed by others
    Pytorch,
    /// 1,000 PyTorch jobs in which things go wrong: does any end differently with Paceline
    Mishaps,
    /// Plain PyTorch jobs with a planted trouble each: is the first sentence of the report right
    Gallery,
    /// Time from gradient to pixel, and frame times at 1,024 ranks, in a real browser
    Page,
    /// Batches over HTTP into a real server: records/s, response times, memory
    Ingest,
    /// 10,001 small runs on one server: memory, open files, startup time
    Runs,
    /// A million slices in each format, from memory and from disk
    Export,
    /// The cost of observation for NCCL's threads
    Callbacks,
    /// The ring all-reduce at several sizes and numbers of ranks
    Allreduce,
    /// For how long a sample of native stacks interrupts a thread
    Stacks,
    /// All but healthy, mishaps, pytorch, gallery and page
    All,
}

impl Bench {
    /// The measurements that [`Bench::All`] stands for.
    const MOST: [Self; 12] = [
        Self::Record,
        Self::Replay,
        Self::Wire,
        Self::Export,
        Self::Ingest,
        Self::Runs,
        Self::Callbacks,
        Self::Stacks,
        Self::Allreduce,
        Self::Overhead,
        Self::Faults,
        Self::Predict,
    ];
}

/// Makes a measurement.
pub fn run(measurement: Bench) -> anyhow::Result<()> {
    match measurement {
        Bench::Record => bench("paceline-agent", "record"),
        Bench::Callbacks => bench("paceline-attach", "callbacks"),
        Bench::Allreduce => bench("paceline-reducer", "all_reduce"),
        Bench::Replay => measure("replay"),
        Bench::Import => measure("import"),
        Bench::Wire => measure("wire"),
        Bench::Export => measure("export"),
        Bench::Ingest => measure("ingest"),
        Bench::Runs => measure("runs"),
        Bench::Overhead => measure("overhead"),
        Bench::Faults => measure("faults"),
        Bench::Predict => measure("predict"),
        Bench::WhatIf => measure("what_if"),
        Bench::Pytorch => measure("pytorch"),
        Bench::Mishaps => measure("mishaps"),
        Bench::Stacks => measure("stacks"),
        Bench::Gallery => measure("gallery"),
        Bench::Healthy => {
            ensure_tools(&MONITORING)?;
            measure("healthy")
        }
        Bench::Page => {
            ensure_tools(&BROWSER)?;
            web::run(web::Size::Small)?;
            measure("page")
        }
        Bench::All => Bench::MOST.into_iter().try_for_each(run),
    }
}

fn bench(package: &str, name: &str) -> anyhow::Result<()> {
    step(name, cargo().args(["bench", "--profile", "release", "--package", package, "--bench", name]))
}

/// Builds all programs, which a measurement may start, then runs it.
fn measure(program: &str) -> anyhow::Result<()> {
    step("building", &mut Profile::Release.build(&[]))?;
    step(program, &mut std::process::Command::new(Profile::Release.folder().join(program)))
}
