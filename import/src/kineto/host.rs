//! What the host's ranges say about the device's work: the phase in which a kernel was launched, and the wait for input.

use std::collections::HashMap;

use timing::intervals::{Interval, Intervals};
use wire::event::SpanKind;

use super::event::Written;

/// The beginning of the name of a range in which the autograd engine runs the backward function of an operator.
pub(crate) const BACKWARD: &str = "autograd::engine::evaluate_function";
/// The beginning of the name of a range around a parameter update.
pub(crate) const OPTIMIZER: &str = "Optimizer.step";
/// The beginning of the name of a range around the wait for the next batch of a data loader.
pub(crate) const INPUT: &str = "enumerate(DataLoader)";

/// The ranges of the host that count.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// When each thread ran backward functions, and updates.
    backward: HashMap<u32, Vec<Interval>>,
    optimizer: HashMap<u32, Vec<Interval>>,
    /// When the host waited for input.
    pub(super) input: Vec<Interval>,
    /// Whether any operator is recorded.
    has_operators: bool,
}

impl Ranges {
    /// Adds an operator of a thread, or a range that the job or PyTorch names.
    pub(super) fn add(&mut self, event: &Written<'_>, thread: u32, times: Interval) {
        self.has_operators |= event.cat != "user_annotation";
        let is = |prefix: &str| event.name.starts_with(prefix);
        let (backward, optimizer, input) = (is(BACKWARD), is(OPTIMIZER), is(INPUT));
        if !(backward || optimizer || input) {
            return;
        }
        if input {
            self.input.push(times);
            return;
        }
        let ranges = if backward { &mut self.backward } else { &mut self.optimizer };
        ranges.entry(thread).or_default().push(times);
    }

    /// Adds the ranges of a part that follows, whose threads have these numbers here.
    pub(super) fn append(&mut self, next: Self, threads: &[u32]) {
        let add = |all: &mut HashMap<u32, Vec<Interval>>, next: HashMap<u32, Vec<Interval>>| {
            for (thread, ranges) in next {
                all.entry(threads[thread as usize]).or_default().extend(ranges);
            }
        };
        add(&mut self.backward, next.backward);
        add(&mut self.optimizer, next.optimizer);
        self.input.extend(next.input);
        self.has_operators |= next.has_operators;
    }

    pub(super) fn phases(self) -> Phases {
        let united = |by_thread: HashMap<u32, Vec<Interval>>| -> HashMap<u32, Intervals> {
            by_thread.into_iter().map(|(thread, ranges)| (thread, Intervals::union(ranges))).collect()
        };
        let has_operators = self.has_operators;
        Phases { backward: united(self.backward), optimizer: united(self.optimizer), has_operators }
    }
}

/// The phases in which the host launches kernels.
pub(super) struct Phases {
    backward: HashMap<u32, Intervals>,
    optimizer: HashMap<u32, Intervals>,
    has_operators: bool,
}

impl Phases {
    /// Returns the phase in which a thread launches a kernel at a time; `None` if the trace has no operators, so that nothing
    /// shows it.
    pub(super) fn launch_phase(&self, thread: u32, time: i64) -> Option<SpanKind> {
        let contains = |by_thread: &HashMap<u32, Intervals>| {
            let ranges = by_thread.get(&thread).map_or(&[][..], Intervals::as_slice);
            let count = ranges.partition_point(|&(begin, _)| begin <= time);
            count.checked_sub(1).is_some_and(|at| time < ranges[at].1)
        };
        if !self.has_operators {
            None
        } else if contains(&self.backward) {
            Some(SpanKind::Backward)
        } else if contains(&self.optimizer) {
            Some(SpanKind::Optimizer)
        } else {
            Some(SpanKind::Forward)
        }
    }
}
