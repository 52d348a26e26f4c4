//! The course of a fault: whether it is active, recurring or resolved, and when it began.

use std::ops::Range;

use wire::views::{ChangePoint, Persistence, VerdictState};

use super::episodes::CHANGE_STEPS;
use crate::change_point::{Change, change_point};
use crate::stats;
use crate::step::StepAnalysis;

/// A recurring fault counts as resolved after it has been absent for this many times its longest pause.
const AWAY_FOR_GOOD: usize = 2;

/// Classifies the episodes among `steps` steps as persistent, onset, transient or recurring.
pub(super) fn persistence(episodes: &[Range<usize>], steps: usize) -> Persistence {
    let from_the_start = episodes.first().is_some_and(|first| first.start < CHANGE_STEPS);
    match (episodes.len(), from_the_start, is_active(episodes, steps)) {
        (2.., ..) => Persistence::Recurring,
        (_, true, true) => Persistence::Persistent,
        (_, false, true) => Persistence::Onset,
        (_, _, false) => Persistence::Transient,
    }
}

/// Returns the state after the last of `steps` steps.
pub(super) fn state(episodes: &[Range<usize>], steps: usize) -> VerdictState {
    let pauses = episodes.windows(2).map(|pair| pair[1].start - pair[0].end);
    let away = steps - episodes.last().map_or(0, |last| last.end);
    match pauses.max() {
        Some(longest) if away <= AWAY_FOR_GOOD * longest => VerdictState::Recurring,
        None if is_active(episodes, steps) => VerdictState::Active,
        _ => VerdictState::Resolved,
    }
}

fn is_active(episodes: &[Range<usize>], steps: usize) -> bool {
    episodes.last().is_some_and(|last| last.end == steps)
}

/// Returns how the suspects' local work changed when the first episode began, or `None` if it did not begin among
/// `steps`. The change point is that of the excess of their local work over the others'.
pub(super) fn onset(
    steps: &[&StepAnalysis],
    ranks: &[usize],
    episodes: &[Range<usize>],
) -> Option<ChangePoint> {
    let first = episodes.first().filter(|first| first.start >= CHANGE_STEPS)?;
    let watched = &steps[..first.end];
    let own = |step: &&StepAnalysis, suspect: bool| {
        let side = step.present().filter(|(rank, _)| ranks.contains(rank) == suspect);
        stats::mean(side.map(|(_, rank)| rank.own_nanos() as f64)).unwrap_or(0.0)
    };
    let excess: Vec<f64> = watched.iter().map(|step| own(step, true) - own(step, false)).collect();
    let change = change_point(&excess)?;
    let (before, after) = watched.split_at(first.start);
    let own = |range: &[&StepAnalysis]| stats::median(range.iter().map(|step| own(step, true)));
    let (before, after) = (own(before)?, own(after)?);
    // The fault has one date: the start of the episode. The change of local work gives its uncertainty.
    let change = Change {
        at: first.start,
        earliest: change.earliest.min(first.start),
        latest: change.latest.max(first.start),
        ..change
    };
    Some(dated(watched, change, before, after))
}

/// Converts a change in `steps` to the form that reports use.
pub(super) fn dated(
    steps: &[&StepAnalysis],
    change: Change,
    before_nanos: f64,
    after_nanos: f64,
) -> ChangePoint {
    let end = |step: &StepAnalysis| step.window.map(|(_, end)| end.0.max(0).unsigned_abs() / 1_000_000);
    ChangePoint {
        step: steps[change.at].step.0,
        earliest: steps[change.earliest].step.0,
        latest: steps[change.latest].step.0,
        unix_millis: end(steps[change.at]),
        before_nanos,
        after_nanos,
        verified: change.verified && after_nanos > before_nanos,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn episodes_determine_persistence_and_state() {
        let course = |episodes: &[Range<usize>]| (persistence(episodes, 200), state(episodes, 200));
        let once = |episode: Range<usize>| course(std::slice::from_ref(&episode));
        assert_eq!(once(0..200), (Persistence::Persistent, VerdictState::Active));
        assert_eq!(once(0..120), (Persistence::Transient, VerdictState::Resolved));
        assert_eq!(once(80..200), (Persistence::Onset, VerdictState::Active));
        assert_eq!(once(80..120), (Persistence::Transient, VerdictState::Resolved));
        assert_eq!(course(&[30..80, 120..160]), (Persistence::Recurring, VerdictState::Recurring));
        assert_eq!(course(&[30..80, 120..200]), (Persistence::Recurring, VerdictState::Recurring));
        let long_ago = [10..30, 50..70];
        assert_eq!(course(&long_ago), (Persistence::Recurring, VerdictState::Resolved));
    }
}
