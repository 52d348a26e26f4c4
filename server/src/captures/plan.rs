//! Which ranks to ask for a trace, and for which steps.

use wire::clock::ServerNanos;
use wire::ids::{Rank, Step};
use wire::request::TraceRequest;
use wire::views::{AttributeKind, Culprit, Report, Verdict, VerdictState};

use crate::state::hub::Stopped;
use crate::state::snapshot::RunSnapshot;
use crate::store::StoreError;
use crate::store::captures::Asked;

/// How far ahead of the newest known step the first one is, in nanoseconds: a request reaches a rank within two seconds.
const AHEAD_NANOS: f64 = 3e9;
/// The longest time for which the newest known step may be late, in nanoseconds. A job that has made no step for longer does
/// something else.
const MOST_LATE_NANOS: i64 = 5_000_000_000;
/// The number of newest steps whose pace counts.
const NEWEST_STEPS: usize = 32;
/// The number of steps that the first step is ahead in addition.
const AHEAD_STEPS: u64 = 2;

/// The reason why ranks are not asked.
#[derive(Debug, thiserror::Error)]
pub enum NotAsked {
    /// The request is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The run cannot be traced now.
    #[error("{0}")]
    Unfit(String),
    /// There is no such rank.
    #[error("{0}")]
    NoRank(String),
    /// The capture cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server stops.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Decides which ranks to ask, and for which steps.
pub(super) fn plan(
    shown: &RunSnapshot,
    ranks: Option<Vec<u32>>,
    steps: u8,
    now: ServerNanos,
    automatic: bool,
) -> Result<Asked, NotAsked> {
    let summary = &shown.summary;
    let run = &summary.run;
    if !(1..=TraceRequest::MAX_STEPS).contains(&steps) {
        let most = TraceRequest::MAX_STEPS;
        return Err(NotAsked::Invalid(format!("steps is {steps}, but must be 1 to {most}")));
    }
    if summary.state.has_ended() {
        return Err(NotAsked::Unfit(format!("run {run} has ended: only a running job can be traced")));
    }
    let report = shown.report.as_deref();
    let (Some(report), Some(newest)) = (report, summary.last_step) else {
        return Err(NotAsked::Unfit(format!("run {run} has no complete step yet: try again once it has")));
    };
    let is_torch = |name: &str, kind| kind == AttributeKind::Software && name == "torch";
    if !report.attributes.iter().any(|attribute| is_torch(&attribute.name, attribute.kind)) {
        return Err(NotAsked::Unfit(format!(
            "no rank of run {run} has reported PyTorch, whose profiler makes the traces: start the job with `paceline \
             run torchrun ...` or `paceline attach`, or call paceline.watch()"
        )));
    }
    let ranks = ranks.unwrap_or_else(|| usual_ranks(report));
    let mut distinct = ranks.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if ranks.is_empty() || distinct.len() != ranks.len() || ranks.len() > TraceRequest::MAX_RANKS {
        let most = TraceRequest::MAX_RANKS;
        return Err(NotAsked::Invalid(format!("ranks must name 1 to {most} different ranks")));
    }
    if let Some(missing) = ranks.iter().find(|&&rank| rank >= summary.ranks_expected) {
        return Err(NotAsked::NoRank(format!("run {run} has no rank {missing}")));
    }
    let newest = shown.steps.last().map_or(newest, |step| newest.max(step.step.0));
    let first = Step(newest + steps_ahead(shown, report, now));
    let id = TraceRequest::new(now, first, steps).number;
    Ok(Asked { id, first_step: first, steps, automatic, ranks: ranks.into_iter().map(Rank).collect() })
}

/// Returns how many steps after the newest known one no rank has begun when the request reaches it.
fn steps_ahead(shown: &RunSnapshot, report: &Report, now: ServerNanos) -> u64 {
    let newest = &shown.steps[shown.steps.len().saturating_sub(NEWEST_STEPS)..];
    let ends: Vec<(Step, ServerNanos)> =
        newest.iter().filter_map(|step| Some((step.step, step.window?.1))).collect();
    let usual = report.period_nanos.value().unwrap_or(AHEAD_NANOS);
    let (period, late) = match (ends.first(), ends.last()) {
        (Some(first), Some(last)) => {
            let steps = last.0.0.saturating_sub(first.0.0);
            let recent = if steps > 0 { (last.1 - first.1) as f64 / steps as f64 } else { usual };
            (usual.min(recent), (now - last.1).clamp(0, MOST_LATE_NANOS))
        }
        _ => (usual, 0),
    };
    ((AHEAD_NANOS + late as f64) / period.max(1.0)).ceil() as u64 + AHEAD_STEPS
}

/// Returns the culprit of the worst verdict that is not over, if it computes slowly.
pub(super) fn slow_compute(report: &Report) -> Option<u32> {
    let worst = present(report).next()?;
    worst.culprit.as_ref().filter(|_| worst.cause.is_slow_compute())?.ranks().first().copied()
}

/// Returns the culprit of the worst verdict that is not over and a rank that no verdict names; ranks 0 and 1 if no rank
/// stands out.
fn usual_ranks(report: &Report) -> Vec<u32> {
    let culprits = present(report).filter_map(|verdict| verdict.culprit.as_ref());
    let blamed: Vec<u32> = culprits.flat_map(Culprit::ranks).copied().collect();
    let others = (0..report.ranks).filter(|rank| !blamed.contains(rank));
    blamed.first().copied().into_iter().chain(others).take(2).collect()
}

/// Returns the verdicts that are not over, the worst first.
fn present(report: &Report) -> impl Iterator<Item = &Verdict> {
    report.verdicts.iter().filter(|verdict| verdict.state != VerdictState::Resolved)
}
