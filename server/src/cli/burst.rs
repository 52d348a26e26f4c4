//! `paceline burst`, which records every kernel of a running job for a short time.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use wire::burst::{Activity, Burst, BurstOutcome};
use wire::event::SpanKind;
use wire::request::{MAX_MILLIS, RecordingRequest};
use wire::views::{RankBurst, RunSummary};

use super::client::RunOnServer;
use super::print;

/// The time to wait for answers, in addition to the length of the burst. Ranks receive a request with the answer to
/// their next batch, at most two seconds later, and CUPTI delivers its records with a delay.
const PATIENCE: Duration = Duration::from_secs(8);
const POLL: Duration = Duration::from_millis(100);
/// The longest name of a kernel in the table, in characters.
const NAME_CHARS: usize = 90;

/// The arguments of `paceline burst`.
#[derive(Debug, Args)]
#[command(
    after_help = "A burst records every kernel and copy on the devices of a CUDA job (CUPTI), for the time given by \
    --millis. A process refuses a burst if another profiler is active, or if it uses PyTorch, whose own profiler may \
    start at any time.\n\nExample: paceline burst latest --rank 2 --millis 500"
)]
pub(super) struct BurstArguments {
    #[command(flatten)]
    run: RunOnServer,
    /// Rank to record [default: all]
    #[arg(long)]
    rank: Option<u32>,
    /// Length of the burst, in milliseconds
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_MILLIS)))]
    millis: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &BurstArguments) -> anyhow::Result<()> {
    let (server, run) = arguments.run.connect()?;
    let path = format!("/api/v1/runs/{run}/bursts");
    let rank = arguments.rank.map_or_else(String::new, |rank| format!("&rank={rank}"));
    let request: RecordingRequest = server.post(&format!("{path}?millis={}{rank}", arguments.millis))?;
    let ranks = match arguments.rank {
        Some(_) => 1,
        None => server.get::<RunSummary>(&format!("/api/v1/runs/{run}/summary"))?.ranks_expected as usize,
    };
    let deadline = Instant::now() + PATIENCE + Duration::from_millis(arguments.millis.into());
    let answered = loop {
        let newest: Vec<RankBurst> = server.get(&path)?;
        let answered: Vec<RankBurst> =
            newest.into_iter().filter(|sent| sent.burst.request >= request.number).collect();
        if answered.len() >= ranks || Instant::now() > deadline {
            break answered;
        }
        std::thread::sleep(POLL);
    };
    if answered.is_empty() {
        bail!("no rank of {run} answered: check that it is running and is a CUDA job");
    }
    if arguments.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&answered)?));
    }
    let mut out = String::new();
    for RankBurst { rank, burst, .. } in &answered {
        text(&mut out, rank.0, burst);
    }
    if answered.len() < ranks {
        let _ = writeln!(out, "{} of {ranks} ranks did not answer.", ranks - answered.len());
    }
    print(&out)
}

fn text(out: &mut String, rank: u32, burst: &Burst) {
    match &burst.outcome {
        BurstOutcome::Refused { reason } => {
            let _ = writeln!(out, "Rank {rank}: nothing recorded: {reason}");
        }
        BurstOutcome::Recorded(activity) if activity.records == 0 => {
            let _ = writeln!(out, "Rank {rank}: nothing ran on its device");
        }
        BurstOutcome::Recorded(activity) => recorded(out, rank, activity),
    }
}

fn recorded(out: &mut String, rank: u32, activity: &Activity) {
    let share = |nanos: u64| nanos as f64 / activity.span_nanos.max(1) as f64 * 100.0;
    let _ = writeln!(
        out,
        "Rank {rank}: {} records in {:.1} ms: compute {:.1} %, collectives {:.1} %{}, copies {:.1} %, idle {:.1} %",
        activity.records,
        activity.span_nanos as f64 / 1e6,
        share(activity.compute_nanos),
        share(activity.collective_nanos),
        hidden(activity),
        share(activity.copy_nanos),
        share(activity.idle_nanos),
    );
    if activity.gaps > 0 {
        let longest = activity.longest_gap_nanos as f64 / 1e3;
        let _ = writeln!(out, "  waited for a launch {} times, {longest:.1} µs at most", activity.gaps);
    }
    if activity.dropped > 0 {
        let _ = writeln!(out, "  {} records did not fit: choose a shorter --millis", activity.dropped);
    }
    let _ = writeln!(out, "  {:>10} {:>8} {:>12}  {:<9}  kernel", "total ms", "calls", "longest µs", "phase");
    for kernel in &activity.kernels {
        let name: String = kernel.name.chars().take(NAME_CHARS).collect();
        let (total, longest) = (kernel.total_nanos as f64 / 1e6, kernel.longest_nanos as f64 / 1e3);
        let phase = kernel.phase.map_or("—", SpanKind::name);
        let _ = writeln!(out, "  {total:>10.3} {:>8} {longest:>12.1}  {phase:<9}  {name}", kernel.calls);
    }
}

/// Returns the hidden share of collectives, as text. The second share also counts copies of streams that compute, and
/// short gaps between their kernels. It is the share to compare with the overlap of a step.
fn hidden(activity: &Activity) -> String {
    let (Some(hidden), Some(covered)) = (activity.overlap_ratio(), activity.covered_ratio()) else {
        return String::new();
    };
    format!(
        " ({:.1} % of it hidden by kernels, {:.1} % by streams that compute)",
        hidden * 100.0,
        covered * 100.0
    )
}
