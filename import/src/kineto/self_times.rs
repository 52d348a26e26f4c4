//! The self time of what the host ran, by step and name.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use wire::traces::TraceRowKind;

use super::marked::{Marked, step_at};

/// An operator, a range, a step or a call of the runtime. Times are in nanoseconds on the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostEvent {
    pub(super) kind: TraceRowKind,
    /// Its name, by number.
    pub(super) name: u32,
    /// Its thread, by number.
    pub(super) thread: u32,
    pub(super) begin: i64,
    pub(super) end: i64,
}

/// What the host took for one name in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSum {
    /// The step in which it began, as an index of [`super::Trace::steps`]; 0 if there are none.
    pub step: usize,
    /// What it is.
    pub kind: TraceRowKind,
    /// Its name, as an index of [`super::Trace::names`].
    pub name: u32,
    /// Its self time, in nanoseconds. It is negative where it ends in the next step, and more of it ran there than here.
    pub nanos: i64,
    /// How often it began.
    pub calls: u64,
}

/// Returns the self time and the calls by step and name. On a thread, what lies within an event is not part of its self time.
/// What begins outside of all steps is left out.
pub(super) fn self_times(mut events: Vec<HostEvent>, steps: &[Marked]) -> Vec<HostSum> {
    // Of two events that begin together, the longer one contains the other.
    events.sort_unstable_by_key(|event| {
        (event.thread, event.begin, Reverse(event.end), event.kind, event.name)
    });
    let mut sums: BTreeMap<(usize, TraceRowKind, u32), (i64, u64)> = BTreeMap::new();
    let mut add = |event: &HostEvent, nanos: i64, calls: u64| {
        let Some(step) = step_of(steps, event.begin) else { return };
        let sum = sums.entry((step, event.kind, event.name)).or_default();
        (sum.0, sum.1) = (sum.0.saturating_add(nanos), sum.1 + calls);
    };
    // The events that contain the current one, outermost first, with the end up to which each is cut.
    let mut enclosing: Vec<(&HostEvent, i64)> = Vec::new();
    for event in &events {
        while enclosing.last().is_some_and(|(outer, end)| outer.thread != event.thread || *end <= event.begin)
        {
            enclosing.pop();
        }
        // Times are rounded, so an event may seem to end after the one that contains it.
        let end = enclosing.last().map_or(event.end, |(_, end)| event.end.min(*end));
        let long = end.saturating_sub(event.begin);
        if let Some((outer, _)) = enclosing.last() {
            add(outer, -long, 0);
        }
        add(event, long, 1);
        enclosing.push((event, end));
    }
    let sum = |((step, kind, name), (nanos, calls))| HostSum { step, kind, name, nanos, calls };
    sums.into_iter().map(sum).collect()
}

fn step_of(steps: &[Marked], at: i64) -> Option<usize> {
    match steps.last() {
        None => Some(0),
        Some(last) => step_at(steps, at).filter(|_| at < last.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATOR: TraceRowKind = TraceRowKind::Operator;

    fn event(name: u32, thread: u32, begin: i64, end: i64) -> HostEvent {
        HostEvent { kind: OPERATOR, name, thread, begin, end }
    }

    fn sums(events: &[HostEvent], steps: &[(i64, i64)]) -> Vec<(usize, u32, i64, u64)> {
        let marked = |(&(begin, end), number)| Marked { number, begin, end };
        let steps: Vec<Marked> = steps.iter().zip(0..).map(marked).collect();
        let sums = self_times(events.to_vec(), &steps);
        sums.iter().map(|sum| (sum.step, sum.name, sum.nanos, sum.calls)).collect()
    }

    #[test]
    fn what_lies_within_is_not_self_time() {
        let nested = [event(3, 0, 30, 40), event(2, 0, 20, 50), event(1, 0, 10, 100), event(2, 1, 20, 50)];
        assert_eq!(sums(&nested, &[]), [(0, 1, 60, 1), (0, 2, 50, 2), (0, 3, 10, 1)]);
    }

    #[test]
    fn an_event_that_seems_to_end_after_the_one_around_it_is_cut() {
        assert_eq!(sums(&[event(1, 0, 10, 100), event(2, 0, 90, 103)], &[]), [(0, 1, 80, 1), (0, 2, 10, 1)]);
    }

    #[test]
    fn an_event_counts_in_the_step_in_which_it_begins() {
        let events = [event(1, 0, 5, 8), event(1, 0, 10, 25), event(2, 0, 22, 24), event(1, 0, 31, 40)];
        let steps = [(10, 20), (20, 30)];
        assert_eq!(
            sums(&events, &steps),
            [(0, 1, 13, 1), (1, 2, 2, 1)],
            "nothing before the first and after the last"
        );
    }
}
