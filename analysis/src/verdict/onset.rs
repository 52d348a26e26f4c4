//! Whether a fault stays, came and went, or comes back, and when it began.

use wire::views::{ChangePoint, Persistence};

use super::episodes::BLOCK;
use crate::change_point::{Change, change_point};
use crate::stats;
use crate::step::StepAnalysis;

/// The stretches of the bad steps (ascending indices), ends included; gaps shorter than a block are bridged.
pub(super) fn stretches(bad: &[usize]) -> Vec<(usize, usize)> {
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    for &at in bad {
        match stretches.last_mut() {
            Some((_, to)) if at - *to <= BLOCK => *to = at,
            _ => stretches.push((at, at)),
        }
    }
    stretches
}

/// How the stretches lie in a window of `steps` steps.
pub(super) fn persistence(stretches: &[(usize, usize)], steps: usize) -> Persistence {
    let from_the_start = stretches.first().is_some_and(|(from, _)| *from < BLOCK);
    let to_the_end = stretches.last().is_some_and(|(_, to)| to + BLOCK >= steps);
    match (stretches.len(), from_the_start, to_the_end) {
        (2.., ..) => Persistence::Recurring,
        (_, true, true) => Persistence::Persistent,
        (_, false, true) => Persistence::Onset,
        (_, _, false) => Persistence::Transient,
    }
}

/// When the first stretch began, if it began in the window: the change of what the suspects' own work exceeds
/// the others' by.
pub(super) fn onset(
    steps: &[&StepAnalysis],
    ranks: &[usize],
    stretches: &[(usize, usize)],
) -> Option<ChangePoint> {
    let &(from, to) = stretches.first()?;
    if from == 0 {
        return None;
    }
    let watched = &steps[..=to];
    let own = |step: &&StepAnalysis, suspect: bool| {
        let those = step.present().filter(|(rank, _)| ranks.contains(rank) == suspect);
        stats::mean(those.map(|(_, rank)| rank.own_nanos() as f64)).unwrap_or(0.0)
    };
    let excess: Vec<f64> = watched.iter().map(|step| own(step, true) - own(step, false)).collect();
    let change = change_point(&excess)?;
    let own = |range: &[&StepAnalysis]| stats::median(range.iter().map(|step| own(step, true)));
    Some(dated(watched, change, own(&watched[..change.at])?, own(&watched[change.at..])?))
}

/// A change as a report says it.
pub(super) fn dated(steps: &[&StepAnalysis], change: Change, before_ns: f64, after_ns: f64) -> ChangePoint {
    let end = |step: &StepAnalysis| step.window.map(|(_, end)| end.0.max(0).unsigned_abs() / 1_000_000);
    ChangePoint {
        step: steps[change.at].step.0,
        earliest: steps[change.earliest].step.0,
        latest: steps[change.latest].step.0,
        unix_millis: end(steps[change.at]),
        before_ns,
        after_ns,
        verified: change.verified && after_ns > before_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_say_how_a_fault_behaves() {
        let all: Vec<usize> = (0..200).collect();
        let of = |bad: &[usize]| persistence(&stretches(bad), 200);
        assert_eq!(of(&all), Persistence::Persistent);
        assert_eq!(of(&all[..120]), Persistence::Transient);
        assert_eq!(of(&all[80..]), Persistence::Onset);
        assert_eq!(of(&all[80..120]), Persistence::Transient);
        assert_eq!(of(&[&all[30..80], &all[120..160]].concat()), Persistence::Recurring);
        assert_eq!(
            of(&[&all[..90], &all[100..]].concat()),
            Persistence::Persistent,
            "a short pause is bridged"
        );
    }
}
