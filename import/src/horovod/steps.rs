//! The steps of a timeline, which marks none.
//!
//! Training reduces each gradient once in a step, so a step ends when each tensor was reduced once more. That is only so if
//! tensors are in fact reduced in turn, which is checked.

use std::collections::BTreeMap;
use std::ops::Range;

use timing::intervals::Interval;

use super::events::{Operation, Recorded};
use crate::listed::counted;
use crate::remarks::Remarks;

/// By how often tensors of one job may be reduced more or less often than each other: a job that is killed stops within a
/// step.
const WITHIN: usize = 2;

/// A step, with its operations as indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) number: u64,
    /// When it began and ended, in nanoseconds.
    pub(super) window: Interval,
    pub(super) operations: Range<usize>,
}

/// When steps end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// The ends, in ascending order, in nanoseconds; none if no steps can be told.
    ends: Vec<i64>,
    /// When the last operation before the first step ended.
    begin: Option<i64>,
}

impl Steps {
    /// Finds the steps of a timeline.
    pub(super) fn new(recorded: &Recorded, remarks: &mut Remarks) -> Self {
        let ends: Vec<&[i64]> = recorded.tensors.values().map(|tensor| &*tensor.ends).collect();
        let Some(ends) = ends_of_steps(&ends) else {
            remarks.add("tensors are not reduced in turn, so steps cannot be told, and all of the timeline is one step");
            return Self { ends: Vec::new(), begin: None };
        };
        remarks.add("the timeline marks no steps: a step ends when each tensor that is reduced again and again was reduced once");
        Self { begin: begin(recorded), ends }
    }

    /// Leaves out all steps after the first `most`.
    pub(super) fn limited(mut self, most: usize, remarks: &mut Remarks) -> Self {
        if self.ends.len() > most {
            remarks.add(format!("only the first {most} of {} steps are imported", self.ends.len()));
            self.ends.truncate(most);
        }
        self
    }

    /// Returns the steps with their operations, which are in order of their ends.
    pub(super) fn split(&self, operations: &[Operation], remarks: &mut Remarks) -> Vec<Step> {
        let first = |from: usize, to: usize| operations[from..to].iter().map(Operation::earliest).min();
        let (Some(last), false) = (operations.last(), self.ends.is_empty()) else {
            let begin = first(0, operations.len()).unwrap_or(0);
            let end = operations.last().map_or(begin, |last| last.end);
            return vec![Step { number: 0, window: (begin, end), operations: 0..operations.len() }];
        };
        let end_index = |time: i64| operations.partition_point(|operation| operation.end <= time);
        let mut first_index = self.begin.map_or(0, end_index);
        left_out(first_index, "before the first step (such as broadcasts of parameters)", remarks);
        let last_end = self.ends.last().copied().unwrap_or(last.end);
        left_out(operations.len() - end_index(last_end), "after the last whole step", remarks);
        let mut begin = self.begin;
        let mut steps = Vec::with_capacity(self.ends.len());
        for (number, &end) in (0..).zip(&self.ends) {
            let end_of_step = end_index(end).max(first_index);
            let began = begin.or_else(|| first(first_index, end_of_step)).unwrap_or(end).min(end);
            steps.push(Step { number, window: (began, end), operations: first_index..end_of_step });
            (first_index, begin) = (end_of_step, Some(end));
        }
        steps
    }
}

impl Operation {
    /// Returns the first time of it that is known.
    fn earliest(&self) -> i64 {
        self.ready.iter().map(|&(_, time)| time).min().unwrap_or(self.begin).min(self.begin)
    }
}

fn left_out(count: usize, which: &str, remarks: &mut Remarks) {
    if count > 0 {
        remarks.add(format!("{} {which} left out", counted(count, "collective")));
    }
}

/// Returns when the last operation ended that came before each tensor that is reduced again and again.
fn begin(recorded: &Recorded) -> Option<i64> {
    let is_once = |operation: &&Operation| {
        recorded.tensors.get(&operation.tensor).is_some_and(|tensor| tensor.ends.len() == 1)
    };
    let first_again =
        recorded.operations.iter().filter(|operation| !is_once(operation)).map(Operation::earliest).min()?;
    let once = recorded.operations.iter().filter(is_once).map(|operation| operation.end);
    once.filter(|end| *end <= first_again).max()
}

/// Returns the ends of steps; `None` if tensors are not reduced in turn. `tensors` has when operations on each ended.
fn ends_of_steps(tensors: &[&[i64]]) -> Option<Vec<i64>> {
    let again: Vec<&[i64]> = tensors.iter().copied().filter(|ends| ends.len() > 1).collect();
    let mut by_count: BTreeMap<usize, usize> = BTreeMap::new();
    again.iter().for_each(|ends| *by_count.entry(ends.len()).or_default() += 1);
    let usual = by_count.into_iter().max_by_key(|&(count, tensors)| (tensors, count))?.0;
    let alike = again.iter().filter(|ends| ends.len().abs_diff(usual) <= WITHIN).count();
    if 2 * alike < again.len() {
        return None;
    }
    let exact: Vec<&[i64]> = again.into_iter().filter(|ends| ends.len() == usual).collect();
    let interval = |at: usize| {
        let ends = exact.iter().map(move |ends| ends[at]);
        Some((ends.clone().min()?, ends.max()?))
    };
    let steps: Vec<Interval> = (0..usual).map(interval).collect::<Option<_>>()?;
    let in_turn = steps.windows(2).filter(|pair| pair[0].1 < pair[1].0).count();
    // A tensor that was late to one step is not a reason to doubt the others.
    if 10 * in_turn < 9 * (usual - 1) {
        return None;
    }
    let mut ends: Vec<i64> = steps.into_iter().map(|(_, last)| last).collect();
    ends.sort_unstable();
    Some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_when_each_tensor_was_reduced_once_more() {
        let (first, second): (&[i64], &[i64]) = (&[10, 40, 70], &[20, 50, 80]);
        assert_eq!(ends_of_steps(&[first, second]), Some(vec![20, 50, 80]));
        // Reduced now and then, or only once, or a step less than the others.
        assert_eq!(
            ends_of_steps(&[first, second, &[30], &[5], &[15, 55], &[12, 42]]),
            Some(vec![20, 50, 80])
        );
    }

    #[test]
    fn tensors_that_are_not_reduced_in_turn_make_no_steps() {
        assert_eq!(ends_of_steps(&[&[10, 20, 30], &[40, 50, 60]]), None, "one after the other");
        assert_eq!(ends_of_steps(&[&[1], &[2]]), None, "once each");
        let often: Vec<i64> = (0..100).collect();
        let more: Vec<i64> = (0..50).collect();
        let most: Vec<i64> = (0..9).collect();
        assert_eq!(ends_of_steps(&[&often, &more, &most]), None, "as often as they like");
        assert_eq!(ends_of_steps(&[]), None);
    }
}
