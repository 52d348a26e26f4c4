//! The steps of a trace, as the device ran them.
//!
//! The profiler marks steps on the host, and the device runs behind it. A kernel therefore belongs to the step that
//! launched it. A step of the device ends with the last of its kernels, and the next one begins there.

use std::collections::HashMap;

use super::trace::{Marked, Trace};

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
    /// True if the step is the first one: what was running when the trace began is not in it.
    pub is_first: bool,
}

/// Returns the steps of the device. A trace without marked steps is one step.
///
/// Work whose launch is missing belongs to the step of the work before it on its stream.
#[must_use]
pub fn device_steps(trace: &Trace) -> Vec<DeviceStep> {
    let marked = if trace.steps.is_empty() { vec![everything(trace)] } else { trace.steps.clone() };
    let of_launch = steps_of_launches(trace, &marked);
    let mut work: Vec<Vec<usize>> = vec![Vec::new(); marked.len()];
    let mut newest: HashMap<i64, usize> = HashMap::new();
    for (at, one) in trace.work.iter().enumerate() {
        let known = of_launch.get(&one.correlation).copied();
        let step = known.or_else(|| newest.get(&one.stream).copied()).or_else(|| step_at(&marked, one.begin));
        if let Some(step) = step {
            newest.insert(one.stream, step);
            work[step].push(at);
        }
    }
    let mut reached = None;
    let mut steps = Vec::with_capacity(marked.len());
    for (at, (marked, work)) in marked.iter().zip(work).enumerate() {
        let first = work.iter().map(|&at| trace.work[at].begin).min();
        let last = work.iter().map(|&at| trace.work[at].end).max();
        let begin = reached.or(first).unwrap_or(marked.begin);
        let end = last.unwrap_or(begin).max(begin);
        reached = Some(end);
        steps.push(DeviceStep { number: marked.number, begin, end, work, is_first: at == 0 });
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

/// Returns the step in which the host was at a time: the last one that had begun. `None` before the first.
fn step_at(marked: &[Marked], at: i64) -> Option<usize> {
    marked.partition_point(|step| step.begin <= at).checked_sub(1)
}
