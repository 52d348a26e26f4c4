//! The steps of a trace, as the device ran them.
//!
//! The profiler marks steps on the host, and the device runs behind it. A kernel therefore belongs to the step that
//! launched it. A step of the device ends with the last of its kernels, and the next one begins there.

use std::collections::HashMap;

use super::marked::{Marked, step_at};
use super::trace::Trace;

/// A step of the device. Times are in nanoseconds on the trace's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStep {
    /// Its number, as the profiler counts; 0 if the trace marks no steps.
    pub number: u64,
    /// Where the step before it ends; the begin of its first kernel if the trace has none before it.
    pub begin: i64,
    /// The end of its last kernel, or the begin if it has none.
    pub end: i64,
    /// Its kernels and copies, as indices of [`Trace::work`].
    pub work: Vec<usize>,
}

/// Returns the steps of the device. A trace without marked steps is one step.
///
/// Work whose launch is missing belongs to the step of the work before it on its stream. Where the trace has launches, the
/// first work on a stream without one was launched before the trace began, and belongs to no step.
#[must_use]
pub fn device_steps(trace: &Trace) -> Vec<DeviceStep> {
    let marked = if trace.steps.is_empty() { vec![everything(trace)] } else { trace.steps.clone() };
    let step_by_launch = steps_of_launches(trace, &marked);
    let mut work: Vec<Vec<usize>> = vec![Vec::new(); marked.len()];
    let mut newest: HashMap<i64, usize> = HashMap::new();
    for (at, ran) in trace.work.iter().enumerate() {
        let known = step_by_launch.get(&ran.correlation).or_else(|| newest.get(&ran.stream)).copied();
        let by_time = || if step_by_launch.is_empty() { step_at(&marked, ran.begin) } else { None };
        if let Some(step) = known.or_else(by_time) {
            newest.insert(ran.stream, step);
            work[step].push(at);
        }
    }
    let mut reached = None;
    let mut steps = Vec::with_capacity(marked.len());
    for (marked, work) in marked.iter().zip(work) {
        let first = work.iter().map(|&at| trace.work[at].begin).min();
        let last = work.iter().map(|&at| trace.work[at].end).max();
        let begin = reached.or(first).unwrap_or(marked.begin);
        let end = last.unwrap_or(begin).max(begin);
        reached = Some(end);
        steps.push(DeviceStep { number: marked.number, begin, end, work });
    }
    steps
}

fn everything(trace: &Trace) -> Marked {
    let begin = trace.work.iter().map(|work| work.begin).min().unwrap_or(0);
    let end = trace.work.iter().map(|work| work.end).max().unwrap_or(0);
    let launches = trace.launches.iter().map(|launch| launch.at);
    Marked { number: 0, begin: launches.clone().fold(begin, i64::min), end: launches.fold(end, i64::max) + 1 }
}

/// Returns the step of each launch, by its correlation.
fn steps_of_launches(trace: &Trace, marked: &[Marked]) -> HashMap<u64, usize> {
    let step = |launch: &super::Launch| Some((launch.correlation, step_at(marked, launch.at)?));
    trace.launches.iter().filter_map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kineto::{Kind, Launch, Work};

    /// A kernel of stream 7, launched by the call with this correlation.
    fn kernel(correlation: u64, begin: i64, end: i64) -> Work {
        Work { kind: Kind::Compute, begin, end, stream: 7, correlation, name: 0, carried: None }
    }

    fn steps(
        work: &[Work],
        launches: &[(u64, i64)],
        marked: &[(u64, i64, i64)],
    ) -> Vec<(u64, i64, i64, Vec<usize>)> {
        let trace = Trace {
            work: work.to_vec(),
            launches: launches
                .iter()
                .map(|&(correlation, at)| Launch { at, correlation, phase: None })
                .collect(),
            steps: marked.iter().map(|&(number, begin, end)| Marked { number, begin, end }).collect(),
            ..Trace::default()
        };
        device_steps(&trace).into_iter().map(|step| (step.number, step.begin, step.end, step.work)).collect()
    }

    #[test]
    fn a_kernel_belongs_to_the_step_that_launched_it() {
        // The second kernel runs while the host is in the next step.
        let work = [kernel(1, 20, 90), kernel(2, 110, 150), kernel(3, 160, 190)];
        let found = steps(&work, &[(1, 10), (2, 90), (3, 105)], &[(4, 0, 100), (5, 100, 200)]);
        assert_eq!(found, [(4, 20, 150, vec![0, 1]), (5, 150, 190, vec![2])]);
    }

    #[test]
    fn what_was_launched_before_the_trace_belongs_to_no_step() {
        let work = [kernel(9, 5, 8), kernel(1, 20, 90), kernel(8, 92, 95)];
        let found = steps(&work, &[(1, 10)], &[(4, 0, 100)]);
        assert_eq!(found, [(4, 20, 95, vec![1, 2])], "a later one follows the work before it");
        let unlaunched = steps(&work, &[], &[(4, 0, 100)]);
        assert_eq!(unlaunched, [(4, 5, 95, vec![0, 1, 2])], "without launches, the time decides");
    }

    #[test]
    fn a_trace_without_marks_is_one_step() {
        let found = steps(&[kernel(1, 20, 90)], &[(1, 10)], &[]);
        assert_eq!(found, [(0, 20, 90, vec![0])]);
    }
}
