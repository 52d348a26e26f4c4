//! Losses outside of steps: restarts, and a start that takes long. Goodput knows what they take (`docs/metrics.md`, "Goodput").
//!
//! Both cost wall time as verdicts on steps do, so they are ordered with these by what they cost.

use wire::event::SpanKind;
use wire::views::goodput::{Goodput, TimeUse};
use wire::views::{Cause, Confidence, Culprit, Persistence, Recurrence, Verdict, VerdictState};

use crate::account::StepAccount;
use crate::checkpoints::Failures;
use crate::finding::{Evidence, Finding, Statement};
use crate::verdict::{Findings, hours_per_day};

/// The time from which a start is long, in seconds: imports of PyTorch and communicators take some seconds each, a cold disk some
/// tens. A short job whose start takes most of its time is short, and its start is not slow: [`crate::wording::account`] says so.
const LONG_START_SECONDS: f64 = 60.0;
/// The least share of the wall time that is listed at all.
const MIN_SHARE: f64 = 0.01;

/// A rank is named for a slow start if the others wait for it for at least this share of the start.
const AWAITED: f64 = 0.5;

/// Adds what the run lost outside of steps to the findings on its observed steps. `start_waits` are how long each rank waited in
/// collectives before its first step, in nanoseconds.
pub(crate) fn add(
    found: &mut Findings,
    goodput: &Goodput,
    steps: &[StepAccount],
    start_waits: &[u64],
    notable_share: f64,
) {
    for finding in [restarts(goodput, steps), start(goodput, start_waits)].into_iter().flatten() {
        let share = finding.verdict.cost_share;
        if share >= notable_share {
            found.verdicts.push(finding);
        } else if share >= MIN_SHARE {
            found.notes.push(finding);
        }
    }
    found.sort_by_share(goodput, steps.iter().map(StepAccount::total).sum());
}

/// Returns a verdict on all ranks over `times` times that cost `nanos` of wall time in all.
fn verdict(cause: Cause, goodput: &Goodput, nanos: f64, times: u64, state: VerdictState) -> Verdict {
    let share = nanos / goodput.wall_nanos.max(1) as f64;
    Verdict {
        state,
        cost_nanos_per_step: (nanos / times.max(1) as f64) as u64,
        cost_share: share,
        affected_steps: times,
        device_hours_per_day: hours_per_day(share, state, goodput.ranks as usize),
        confidence: Confidence::High,
        ..Verdict::new(Culprit::All, cause)
    }
}

/// Returns the wall time of a use, averaged over ranks, in nanoseconds.
fn wall(goodput: &Goodput, time_use: TimeUse) -> f64 {
    goodput.share(time_use) * goodput.wall_nanos as f64
}

/// Finds what restarts took: recovery, and steps that are done twice.
fn restarts(goodput: &Goodput, steps: &[StepAccount]) -> Option<Finding> {
    let (first, last) = (goodput.attempts.first()?, goodput.attempts.last()?);
    // Attempts are numbered from 0, and only the newest are listed.
    let times = u64::from(last.number);
    let (recovery, repeated) = (wall(goodput, TimeUse::Recovery), wall(goodput, TimeUse::Repeated));
    if times == 0 || recovery + repeated <= 0.0 {
        return None;
    }
    let state = if times > 1 { VerdictState::Recurring } else { VerdictState::Resolved };
    let begins: Vec<u64> =
        goodput.attempts[1..].iter().filter_map(|attempt| Some(attempt.steps?.0)).collect();
    let mut verdict = verdict(Cause::Restart, goodput, recovery + repeated, times, state);
    let ends = first.steps.map_or(0, |(_, last)| last);
    verdict.steps = (begins.first().copied().unwrap_or(ends), begins.last().copied().unwrap_or(ends));
    verdict.persistence = Some(if times > 1 { Persistence::Recurring } else { Persistence::Transient });
    verdict.recurrence = Some(Recurrence {
        times,
        every_steps: None,
        nanos: verdict.cost_nanos_per_step,
        share_of_time: verdict.cost_share,
        steps: begins.into_iter().rev().take(Recurrence::MAX_STEPS).rev().collect(),
    });
    let per_restart = |nanos: f64| nanos / times as f64;
    let statement =
        Statement::Restarted { recovery_nanos: per_restart(recovery), repeated_nanos: per_restart(repeated) };
    let mut finding = Finding::new(verdict, statement);
    finding.evidence.push(Evidence::Attempts { attempts: times + 1, repeated_steps: goodput.repeated_steps });
    finding.evidence.extend(best_interval(goodput, steps, times));
    Some(finding)
}

/// Returns how often checkpoints should be written, if it is known how long one takes.
fn best_interval(goodput: &Goodput, steps: &[StepAccount], restarts: u64) -> Option<Evidence> {
    let kind = SpanKind::PAUSES.into_iter().position(|kind| kind == SpanKind::Checkpoint)?;
    let pauses: Vec<f64> = steps.iter().map(|step| step.pauses[kind]).filter(|nanos| *nanos > 0.0).collect();
    let checkpoint = crate::stats::mean(pauses)? / 1e9;
    let failure_interval = goodput.wall_nanos as f64 / 1e9 / restarts as f64;
    let seconds = Failures { failure_interval, checkpoint }.interval();
    Some(Evidence::BestInterval { failure_interval, checkpoint, seconds })
}

/// Finds a start that takes long: from the launch to the first step.
fn start(goodput: &Goodput, start_waits: &[u64]) -> Option<Finding> {
    let uses = [TimeUse::Launch, TimeUse::Setup];
    let nanos: f64 = uses.into_iter().map(|time_use| wall(goodput, time_use)).sum();
    if nanos < LONG_START_SECONDS * 1e9 {
        return None;
    }
    let mut verdict = verdict(Cause::Start, goodput, nanos, 1, VerdictState::Resolved);
    verdict.recurrence = Some(Recurrence {
        times: 1,
        every_steps: None,
        nanos: verdict.cost_nanos_per_step,
        share_of_time: verdict.cost_share,
        steps: Vec::new(),
    });
    let awaited = awaited(goodput, start_waits).filter(|(_, waited)| *waited >= AWAITED * nanos);
    if let Some((rank, _)) = awaited {
        verdict.culprit = Some(Culprit::Rank(rank));
    }
    let others_waited = awaited.map(|(_, waited)| waited);
    let mut finding = Finding::new(verdict, Statement::StartedLate { others_waited });
    finding.evidence.push(Evidence::Start {
        launch: wall(goodput, TimeUse::Launch),
        setup: wall(goodput, TimeUse::Setup),
        warm_up: wall(goodput, TimeUse::WarmUp),
    });
    Some(finding)
}

/// Returns the rank that waited least before the first step, and how much longer every other rank waited, in nanoseconds.
/// `None` if the job was restarted: then only the waits of its newest start are known.
fn awaited(goodput: &Goodput, start_waits: &[u64]) -> Option<(u32, f64)> {
    if goodput.attempts.len() != 1 {
        return None;
    }
    let mut waits: Vec<(u64, u32)> = start_waits.iter().copied().zip(0..).collect();
    waits.sort_unstable();
    let &[(own, rank), (others, _), ..] = waits.as_slice() else { return None };
    Some((rank, (others - own) as f64))
}

#[cfg(test)]
mod tests;
