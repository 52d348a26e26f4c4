//! `paceline stacks`, which says in which lines of code the ranks of a running job spend their time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use analysis::stacks::way;
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use units::percent;
use wire::ids::Rank;
use wire::request::{MAX_MILLIS, RecordingRequest};
use wire::stacks::{Profile, StacksOutcome};
use wire::views::{RankStacks, RunSummary};

use super::client::{Client, RunOnServer};
use super::print;
use crate::export::stacks::{folded, speedscope, title};

/// The time to wait for answers, in addition to the length of the recording. See `burst::PATIENCE`.
const PATIENCE: Duration = Duration::from_secs(8);
const POLL: Duration = Duration::from_millis(100);
/// The number of stacks listed per thread.
const MOST_LISTED: usize = 5;
/// The smallest share of a listed stack.
const LEAST_LISTED: f64 = 0.02;

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The most frequent stacks of each thread. Ranks with equal ones are listed together
    Text,
    /// A line per stack with its number of samples, for flame graphs
    Folded,
    /// Profile for <https://www.speedscope.app>
    Speedscope,
    /// All that was sampled
    Json,
}

/// The arguments of `paceline stacks`.
#[derive(Debug, Args)]
#[command(
    after_help = "The stacks of a rank's threads are sampled 25 times per second. A rank that a verdict names is sampled \
    once without being asked for.\n\n\
    PyTorch jobs: Python's stacks, also those of the data loader's workers, are read from memory. Nothing is stopped, and \
    a rank that hangs in a call can be sampled as well. This needs CPython 3.9 to 3.13.\n\
    Jobs with the reducer: native stacks. For each sample, a signal interrupts each thread for some tens of \
    microseconds. Functions have lines if the program was built with line tables.\n\n\
    Examples:\n  paceline stacks latest --rank 2\n  paceline stacks latest --format speedscope -o stacks.json"
)]
pub(super) struct StacksArguments {
    #[command(flatten)]
    run: RunOnServer,
    /// Rank to sample [default: all]
    #[arg(long)]
    rank: Option<u32>,
    /// How long to sample, in milliseconds
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_MILLIS)))]
    millis: u16,
    /// Show the newest stacks of each rank, without sampling again
    #[arg(long)]
    newest: bool,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(arguments: &StacksArguments) -> anyhow::Result<()> {
    let (server, run) = arguments.run.connect()?;
    let path = format!("/api/v1/runs/{run}/stacks");
    let ranks = if arguments.newest { server.get(&path)? } else { sample(arguments, &server, &run, &path)? };
    let ranks: Vec<RankStacks> = ranks
        .into_iter()
        .filter(|sent: &RankStacks| arguments.rank.is_none_or(|rank| rank == sent.rank.0))
        .collect();
    if ranks.is_empty() {
        bail!(
            "there are no stacks of {run}: check that it is running, and that it is a PyTorch job or has the reducer"
        );
    }
    let out = match arguments.format {
        Format::Text => text(&ranks),
        Format::Folded => folded(&ranks),
        Format::Speedscope => format!("{}\n", speedscope(&ranks)),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&ranks)?),
    };
    match &arguments.output {
        Some(file) => std::fs::write(file, out).with_context(|| format!("cannot write {}", file.display())),
        None => print(&out),
    }
}

fn sample(
    arguments: &StacksArguments,
    server: &Client,
    run: &str,
    path: &str,
) -> anyhow::Result<Vec<RankStacks>> {
    let summary: RunSummary = server.get(&format!("/api/v1/runs/{run}/summary"))?;
    if summary.state.has_ended() {
        bail!("{run} has ended: --newest shows the stacks that were sampled while it ran");
    }
    let rank = arguments.rank.map_or_else(String::new, |rank| format!("&rank={rank}"));
    let request: RecordingRequest = server.post(&format!("{path}?millis={}{rank}", arguments.millis))?;
    let expected = arguments.rank.map_or(summary.ranks_expected as usize, |_| 1);
    let deadline = Instant::now() + PATIENCE + Duration::from_millis(arguments.millis.into());
    loop {
        let newest: Vec<RankStacks> = server.get(path)?;
        let answered: Vec<RankStacks> =
            newest.into_iter().filter(|sent| sent.stacks.request >= request.number).collect();
        if answered.len() >= expected || Instant::now() > deadline {
            return Ok(answered);
        }
        std::thread::sleep(POLL);
    }
}

fn text(ranks: &[RankStacks]) -> String {
    let mut out = String::new();
    let mut alike: BTreeMap<String, Vec<Rank>> = BTreeMap::new();
    for RankStacks { rank, stacks } in ranks {
        let listed = match &stacks.outcome {
            StacksOutcome::Refused { reason } => format!("  no stacks: {reason}\n"),
            StacksOutcome::Sampled(profile) => listed(profile),
        };
        alike.entry(listed).or_default().push(*rank);
    }
    let mut groups: Vec<(String, Vec<Rank>)> = alike.into_iter().collect();
    // What few ranks do is the more interesting.
    groups.sort_by_key(|(_, ranks)| (ranks.len(), ranks[0]));
    for (listed, ranks) in groups {
        let many = if ranks.len() == 1 { "Rank" } else { "Ranks" };
        let ranks: Vec<String> = ranks.iter().map(Rank::to_string).collect();
        let _ = write!(out, "{many} {}:\n{listed}", ranks.join(", "));
    }
    out
}

/// Returns the most frequent stacks of a rank's threads.
fn listed(profile: &Profile) -> String {
    let mut out = String::new();
    for thread in &profile.threads {
        let _ = writeln!(out, "  {}", title(thread));
        for stack in thread.stacks.iter().take(MOST_LISTED) {
            let share = stack.count as f64 / thread.samples.max(1) as f64;
            if share >= LEAST_LISTED {
                let _ = writeln!(out, "    {:>6}  {}", percent(share), way(profile, stack));
            }
        }
    }
    out
}
