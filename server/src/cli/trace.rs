//! `paceline trace`, which records a few steps of some ranks with PyTorch's profiler and says what differs between them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use units::{bytes, nanos, signed_nanos};
use wire::request::TraceRequest;
use wire::traces::TraceRowKind;
use wire::views::captures::{Capture, CaptureOutcome, StoredTrace, TraceComparison};

use super::client::{Client, RunOnServer};
use super::print;
use crate::export::kernel_name::shortened;

/// The time between two looks for answers.
const POLL: Duration = Duration::from_millis(200);
/// The number of differences that are listed.
const MOST_LISTED: usize = 10;

/// The arguments of `paceline trace`.
#[derive(Debug, Args)]
#[command(
    after_help = "PyTorch's profiler records the same steps on the ranks, which begin together a few seconds from now. \
    It makes these steps slower, and the results of the job stay the same. A rank refuses while the job's own profiler is \
    active. The traces are stored with the run; Perfetto (https://ui.perfetto.dev) opens them.\n\n\
    Examples:\n  paceline trace latest\n  paceline trace latest --ranks 2,3 --steps 3 --output traces"
)]
pub(super) struct TraceArguments {
    #[command(flatten)]
    run: RunOnServer,
    /// Ranks to trace, at most 4; the first is compared with the second [default: the culprit of the verdict and a rank
    /// that no verdict names]
    #[arg(long, value_delimiter = ',', value_name = "RANKS")]
    ranks: Vec<u32>,
    /// Steps to trace
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=i64::from(TraceRequest::MAX_STEPS)))]
    steps: u8,
    /// How long to wait for the ranks, in seconds; 0 only asks them
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    wait: u64,
    /// Directory to write the traces to [default: they stay on the server]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON: the answers of the ranks, and the comparison
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &TraceArguments) -> anyhow::Result<()> {
    let (server, run) = arguments.run.connect()?;
    let path = format!("/api/v1/runs/{run}/captures");
    let ranks: Vec<String> = arguments.ranks.iter().map(u32::to_string).collect();
    let ranks = if ranks.is_empty() { String::new() } else { format!("&ranks={}", ranks.join(",")) };
    let asked: Capture = server.post(&format!("{path}?steps={}{ranks}", arguments.steps))?;
    let capture = wait(&server, &path, asked, Duration::from_secs(arguments.wait))?;
    let mut out = String::new();
    let compared: Option<TraceComparison> = match capture.stored().count() {
        0 | 1 => None,
        _ => Some(server.get_slowly(&format!("{path}/{}/comparison", capture.id))?),
    };
    for rank_capture in &capture.ranks {
        let said = match &rank_capture.outcome {
            CaptureOutcome::Stored(stored) => {
                let at = format!("{path}/{}/ranks/{}", capture.id, rank_capture.rank);
                let place = match &arguments.output {
                    Some(folder) => {
                        let name = format!("rank-{}.trace.json.gz", rank_capture.rank);
                        fetch(&server, &at, folder, &name)?
                    }
                    None => server.address(&at),
                };
                told(stored, capture.first_step.0, &place)
            }
            CaptureOutcome::Refused { reason } => format!("no trace: {reason}"),
            CaptureOutcome::Waiting => {
                format!("no answer yet: look again at {}, or wait longer with --wait", server.address(&path))
            }
        };
        let _ = writeln!(out, "Rank {}: {said}", rank_capture.rank);
    }
    if let Some(compared) = &compared {
        out.push_str(&differences(compared));
    }
    if arguments.json {
        let all = serde_json::json!({ "capture": capture, "comparison": compared });
        print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
    } else {
        print(&out)?;
    }
    if arguments.wait > 0 && capture.stored().next().is_none() {
        bail!("no rank of {run} has sent a trace");
    }
    Ok(())
}

/// Waits until all ranks have answered, for `limit` at most.
fn wait(server: &Client, path: &str, asked: Capture, limit: Duration) -> anyhow::Result<Capture> {
    let deadline = Instant::now() + limit;
    let mut newest = asked;
    while !newest.is_complete() && Instant::now() < deadline {
        std::thread::sleep(POLL);
        let captures: Vec<Capture> = server.get(path)?;
        let found = captures.into_iter().find(|capture| capture.id == newest.id);
        newest = found.context("the server has deleted the capture: the run has too many")?;
    }
    Ok(newest)
}

/// Says what a trace contains and where it is.
fn told(stored: &StoredTrace, asked: u64, place: &str) -> String {
    let first = stored.first_step.0;
    let last = first + u64::from(stored.steps.max(1)) - 1;
    let late = if first > asked {
        format!(", not {asked} as asked, because the rank was beyond it")
    } else {
        String::new()
    };
    let pause = nanos(stored.pause_nanos as f64);
    format!(
        "steps {first} to {last}{late}; {}; the profiler held the training thread for {pause}\n  {place}",
        bytes(stored.bytes)
    )
}

/// Returns the largest differences, what takes the first rank longer before what takes it less long.
fn differences(compared: &TraceComparison) -> String {
    let TraceComparison { rank, against, own, other, .. } = compared;
    let mut rows: Vec<_> = compared.rows.iter().collect();
    rows.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    rows.truncate(MOST_LISTED);
    rows.sort_by(|a, b| b.difference().total_cmp(&a.difference()));
    let mut out = format!(
        "A step takes {} on rank {rank} and {} on rank {against}. Per step:\n",
        nanos(own.step_nanos),
        nanos(other.step_nanos)
    );
    for row in rows {
        let name = shortened(&row.name);
        let kind = match row.kind {
            TraceRowKind::Operator | TraceRowKind::Outside => String::new(),
            kind => format!(" ({})", kind.name()),
        };
        let _ = writeln!(
            out,
            "  {:>10}  {name}{kind}: {} on rank {rank}, {} on rank {against}",
            signed_nanos(row.difference()),
            nanos(row.own_nanos),
            nanos(row.other_nanos)
        );
    }
    out
}

fn fetch(server: &Client, at: &str, folder: &Path, name: &str) -> anyhow::Result<String> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let file = folder.join(name);
    std::fs::write(&file, server.bytes(at)?).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file.display().to_string())
}
