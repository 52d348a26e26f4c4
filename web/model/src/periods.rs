//! Which steps count as now, and which as the run's healthy period.

use wire::views::{Verdict, VerdictState};

use crate::bands;

/// The shortest period that is compared, in steps. A verdict needs as many.
const MIN_STEPS: u64 = 20;
/// The number of steps by which a running period grows, so that its report is not fetched with every step.
const GROWS_BY: u64 = 16;

/// Two periods of a run. Ranges include both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// The steps since the worst fault began, or since the last one ended; `None` if the report covers just these.
    pub now: Option<(u64, u64)>,
    /// The longest period without a fault; `None` if no step has a fault, or if nothing else is left.
    pub healthy: Option<(u64, u64)>,
}

/// Returns the periods of a report over the steps `range` with these verdicts, worst first. The last period of a run that
/// has ended is complete.
#[must_use]
pub fn periods(verdicts: &[Verdict], range: Option<(u64, u64)>, has_ended: bool) -> Periods {
    let in_steps = || verdicts.iter().filter(|verdict| !verdict.cause.is_outside_steps());
    let (Some((first, last)), Some(worst)) = (range, in_steps().next()) else { return Periods::default() };
    let mut faults: Vec<(u64, u64)> = in_steps().map(|verdict| bands::steps(verdict, last)).collect();
    faults.sort_unstable();
    let now = match worst.state {
        VerdictState::Active => (bands::steps(worst, last).0.max(first), last),
        VerdictState::Recurring => (first, last),
        VerdictState::Resolved => {
            let ended = faults.iter().map(|fault| fault.1).max().unwrap_or(first);
            ((ended + 1).min(last), last)
        }
    };
    let upto = if has_ended { last } else { last / GROWS_BY * GROWS_BY };
    let grown = (now.0, upto);
    Periods {
        now: (now.0 > first && is_long(grown)).then_some(grown),
        healthy: healthy(&faults, first, last, upto).filter(|period| is_long(*period)),
    }
}

fn is_long((first, last): (u64, u64)) -> bool {
    last >= first && last - first + 1 >= MIN_STEPS
}

/// Returns the longest stretch of `first..=last` that no fault covers. `faults` are in ascending order, and a stretch at the
/// end counts up to `upto`.
fn healthy(faults: &[(u64, u64)], first: u64, last: u64, upto: u64) -> Option<(u64, u64)> {
    let mut free = Vec::new();
    let mut next = first;
    for &(begin, end) in faults {
        if begin > next {
            free.push((next, (begin - 1).min(last)));
        }
        next = next.max(end + 1);
    }
    if next <= last {
        free.push((next, upto));
    }
    free.into_iter().filter(|(from, to)| from <= to).max_by_key(|(from, to)| to - from)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use wire::views::{Cause, Culprit};

    pub(crate) fn verdict(state: VerdictState, steps: (u64, u64)) -> Verdict {
        Verdict {
            state,
            cost_nanos_per_step: 1,
            cost_share: 0.1,
            affected_steps: 1,
            steps,
            ..Verdict::new(Culprit::Rank(2), Cause::Input)
        }
    }

    #[test]
    fn an_active_fault_is_compared_with_the_time_before_it() {
        let found = periods(&[verdict(VerdictState::Active, (120, 410))], Some((2, 411)), false);
        assert_eq!(found, Periods { now: Some((120, 400)), healthy: Some((2, 119)) });
    }

    #[test]
    fn after_a_fault_now_is_the_time_since_its_end() {
        let found = periods(&[verdict(VerdictState::Resolved, (100, 199))], Some((2, 400)), false);
        assert_eq!(found, Periods { now: Some((200, 400)), healthy: Some((200, 400)) });
    }

    #[test]
    fn the_last_period_of_a_run_that_has_ended_is_complete() {
        let active = periods(&[verdict(VerdictState::Active, (150, 299))], Some((2, 299)), true);
        assert_eq!(active.now, Some((150, 299)));
        let found = periods(&[verdict(VerdictState::Resolved, (100, 199))], Some((2, 399)), true);
        assert_eq!(found, Periods { now: Some((200, 399)), healthy: Some((200, 399)) });
    }

    #[test]
    fn a_fault_from_the_first_step_has_no_healthy_period() {
        assert_eq!(
            periods(&[verdict(VerdictState::Active, (2, 300))], Some((2, 300)), false),
            Periods::default()
        );
        assert_eq!(periods(&[], Some((2, 300)), false), Periods::default());
        assert_eq!(periods(&[verdict(VerdictState::Active, (9, 9))], None, false), Periods::default());
    }

    #[test]
    fn overlapping_faults_leave_the_longest_gap() {
        let faults = [
            verdict(VerdictState::Active, (300, 400)),
            verdict(VerdictState::Resolved, (50, 120)),
            verdict(VerdictState::Resolved, (100, 150)),
        ];
        assert_eq!(periods(&faults, Some((0, 400)), false).healthy, Some((151, 299)));
    }
}
