//! `paceline sweep`, which runs a job with several bucket caps.

mod text;

use std::net::SocketAddr;
use std::path::PathBuf;

use analysis::sweep::CapRun;
use anyhow::Context as _;
use clap::Args;

use super::progress::Parts;
use super::trials::{self, Trial};
use super::{DataArgument, print, runtime, start_logging};
use crate::serve::Presentation;

/// The number of steps at the end of each run that are measured.
const MEASURED_STEPS: usize = 20;
/// The variable that gives a job its bucket cap, in MiB.
const CAP: &str = "PACELINE_BUCKET_CAP_MIB";

/// The arguments of `paceline sweep`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each run gets its cap in PACELINE_BUCKET_CAP_MIB, and {cap} in CMD is replaced by it.\n\
    All figures are measured over the last 20 observed steps of each run. The accuracy is the job's label \"accuracy\", \
    if it states one.\n\n\
    Example: paceline sweep --bucket-cap 0.5,1,2,4,8 -n 4 -- char_lm --steps 120"
)]
pub(super) struct SweepArguments {
    /// Bucket caps to try, in MiB
    #[arg(long, value_delimiter = ',', required = true, value_name = "MIB,...", value_parser = cap)]
    bucket_cap: Vec<f64>,
    /// Number of ranks to start on this machine
    #[arg(short = 'n', long = "nproc", value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(2..=4096))]
    nproc: u32,
    /// Number of runs per cap; the caps alternate, and the median run of each counts
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// CSV file to write
    #[arg(short, long, value_name = "FILE", default_value = "sweep.csv")]
    output: PathBuf,
    /// Address of the server to start; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    #[command(flatten)]
    data: DataArgument,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

fn cap(text: &str) -> Result<f64, String> {
    let cap = text.parse().ok().filter(|cap: &f64| *cap > 0.0 && *cap < 1e6);
    cap.ok_or_else(|| "must be a number of MiB above 0, such as 0.5".into())
}

pub(super) fn sweep(arguments: &SweepArguments, presentation: Presentation) -> anyhow::Result<()> {
    start_logging("warn");
    runtime::run(run_all(arguments, presentation))
}

async fn run_all(arguments: &SweepArguments, presentation: Presentation) -> anyhow::Result<()> {
    let server = trials::serve(arguments.listen, &arguments.data, presentation).await?;
    let mut measured = Vec::new();
    let mut runs = Parts::new(arguments.repeats as usize * arguments.bucket_cap.len());
    for _ in 0..arguments.repeats {
        for &cap in &arguments.bucket_cap {
            print(&format!("\nBucket cap {cap} MiB (run {}):\n", runs.next()))?;
            let trial = Trial {
                command: &arguments.command,
                starter: "sweep",
                ranks: arguments.nproc,
                placeholder: ("{cap}", cap.to_string()),
                environment: vec![(CAP.into(), cap.to_string().into())],
                what: format!("a bucket cap of {cap} MiB"),
            };
            let report = trial.run(&server, MEASURED_STEPS).await?;
            measured.push(CapRun::new(cap, &report).with_context(|| {
                format!("the run with a cap of {cap} MiB has no observed steps: run the job for more steps")
            })?);
        }
    }
    server.stop().await;
    std::fs::write(&arguments.output, text::csv(&measured))
        .with_context(|| format!("cannot write {}", arguments.output.display()))?;
    print(&format!("\n{}\nWritten to {}\n", text::table(&measured), arguments.output.display()))
}
