//! `paceline scale`, which runs a job on several world sizes.

mod text;

use std::net::SocketAddr;
use std::path::PathBuf;

use analysis::study::{StudiedRun, Study};
use anyhow::Context as _;
use clap::Args;

use super::progress::Parts;
use super::trials::{self, Trial};
use super::{DataArgument, print, runtime, start_logging};
use crate::serve::Presentation;

/// The arguments of `paceline scale`.
#[derive(Debug, Args)]
#[command(
    after_help = "In CMD, {ranks} is replaced by the number of ranks. Whether the scaling is weak (the same batch per rank) or \
    strong (the same total batch) follows from the batches that the job states.\n\n\
    The efficiency on N ranks is the throughput per rank over that on the fewest ranks, as a mean over the repeats. The \
    world sizes alternate, so that a disturbance of a whole repeat cancels out. All figures are over the observed steps \
    of each run; the CSV file has a line per run.\n\n\
    Examples:\n  \
    paceline scale -n 1,2,4 --repeats 5 -- char_lm --steps 300\n  \
    paceline scale -n 1,2,4 --repeats 5 -- char_lm --steps 300 --strong --batch 32"
)]
pub(super) struct ScaleArguments {
    /// World sizes to run on, on this machine
    #[arg(short = 'n', long = "nproc", value_delimiter = ',', required = true, value_name = "N,...",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    nproc: Vec<u32>,
    /// Number of runs per world size; with two or more, the efficiency has an interval
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// CSV file to write
    #[arg(short, long, value_name = "FILE", default_value = "scale.csv")]
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

pub(super) fn scale(arguments: &ScaleArguments, presentation: Presentation) -> anyhow::Result<()> {
    start_logging("warn");
    runtime::run(run_all(arguments, presentation))
}

async fn run_all(arguments: &ScaleArguments, presentation: Presentation) -> anyhow::Result<()> {
    let mut worlds = arguments.nproc.clone();
    worlds.sort_unstable();
    worlds.dedup();
    anyhow::ensure!(worlds.len() > 1, "-n needs two or more world sizes, such as -n 1,2,4");
    let server = trials::serve(arguments.listen, &arguments.data, presentation).await?;
    let mut studied = Vec::new();
    let mut runs = Parts::new(arguments.repeats as usize * worlds.len());
    for repeat in 0..arguments.repeats {
        for &ranks in &worlds {
            let ranks_named = units::ranks(ranks);
            print(&format!("\n{ranks_named} (run {}):\n", runs.next()))?;
            let trial = Trial {
                command: &arguments.command,
                starter: "scale",
                ranks,
                placeholder: ("{ranks}", ranks.to_string()),
                environment: Vec::new(),
                what: ranks_named.clone(),
            };
            let report = trial.run(&server, usize::MAX).await?;
            studied.push(StudiedRun::new(repeat, report).with_context(|| {
                format!("the run on {ranks_named} has no observed steps: run the job for more steps")
            })?);
        }
    }
    server.stop().await;
    let study = Study::new(studied);
    std::fs::write(&arguments.output, text::csv(&study))
        .with_context(|| format!("cannot write {}", arguments.output.display()))?;
    print(&format!("\n{}\nWritten to {}\n", text::table(&worlds, &study), arguments.output.display()))
}
