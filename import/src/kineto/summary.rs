//! The summary of a trace: what ran in some of its steps, by name.

use std::collections::BTreeMap;

use wire::traces::{MAX_TRACE_ROWS, OTHER_NAMES, OUTSIDE, TraceRowKind, TraceSum, TraceSummary, longest};

use super::steps::DeviceStep;
use super::trace::Trace;
use super::work::{Kind, Work};

#[derive(Clone, Copy, Default)]
struct Sum {
    nanos: i64,
    calls: u64,
    gap_nanos: u64,
}

/// Returns what ran in some steps of a trace ([`super::device_steps`]).
///
/// Operators, ranges and calls of the runtime count in the step in which they begin, and kernels in the step that launched
/// them. The gap before a kernel is the time in which the device ran nothing since the kernels before it.
#[must_use]
pub fn summary(trace: &Trace, steps: &[&DeviceStep]) -> TraceSummary {
    let counts: Vec<bool> = match trace.steps.len() {
        0 => vec![true],
        _ => trace.steps.iter().map(|marked| steps.iter().any(|step| step.number == marked.number)).collect(),
    };
    let mut sums: BTreeMap<(TraceRowKind, u32), Sum> = BTreeMap::new();
    for host in trace.host.iter().filter(|host| counts[host.step]) {
        // All steps have one row.
        let name = if host.kind == TraceRowKind::Outside { u32::MAX } else { host.name };
        let sum = sums.entry((host.kind, name)).or_default();
        (sum.nanos, sum.calls) = (sum.nanos.saturating_add(host.nanos), sum.calls + host.calls);
    }
    let mut reached = None;
    for work in kernels(trace, steps) {
        let sum = sums.entry((TraceRowKind::Kernel, work.name)).or_default();
        sum.nanos = sum.nanos.saturating_add(work.end - work.begin);
        sum.calls += 1;
        sum.gap_nanos += (work.begin - reached.unwrap_or(work.begin)).max(0).unsigned_abs();
        reached = reached.max(Some(work.end));
    }
    TraceSummary {
        steps: steps.len() as u32,
        step_nanos: duration(trace, steps, &counts).max(0).unsigned_abs(),
        rows: rows(trace, sums),
    }
}

/// Returns the kernels, copies and fills of the steps, in order of their begin.
fn kernels<'a>(trace: &'a Trace, steps: &[&DeviceStep]) -> Vec<&'a Work> {
    let mut indices: Vec<usize> = steps.iter().flat_map(|step| step.work.iter().copied()).collect();
    // The work of a trace is in order of its begin.
    indices.sort_unstable();
    indices.into_iter().map(|at| &trace.work[at]).filter(|work| work.kind != Kind::Wait).collect()
}

/// Returns how long the steps take: on the device, as in all other figures, or on the host if the device ran nothing.
fn duration(trace: &Trace, steps: &[&DeviceStep], counts: &[bool]) -> i64 {
    if steps.iter().any(|step| !step.work.is_empty()) {
        return steps.iter().map(|step| step.end - step.begin).sum();
    }
    let marked = trace.steps.iter().zip(counts).filter(|(_, counts)| **counts).map(|(step, _)| step);
    match (marked.clone().map(|step| step.begin).min(), marked.map(|step| step.end).max()) {
        (Some(begin), Some(end)) => end - begin,
        _ => 0,
    }
}

/// Returns the longest rows. The rest of each kind becomes one row.
fn rows(trace: &Trace, sums: BTreeMap<(TraceRowKind, u32), Sum>) -> Vec<TraceSum> {
    let name = |kind, name: u32| match kind {
        TraceRowKind::Outside => OUTSIDE,
        _ => trace.names.get(name as usize).map_or(OTHER_NAMES, |name| name),
    };
    let row = |((kind, number), sum): ((TraceRowKind, u32), Sum)| TraceSum {
        kind,
        name: name(kind, number).to_owned(),
        nanos: sum.nanos.max(0).unsigned_abs(),
        calls: sum.calls,
        gap_nanos: sum.gap_nanos,
    };
    longest(sums.into_iter().map(row).collect(), MAX_TRACE_ROWS)
}

#[cfg(test)]
mod tests {
    use super::super::{device_steps, read};
    use super::*;

    const TRACE: &str = r#"{"traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#8", "pid": 1, "tid": 1, "ts": 1200.0, "dur": 100.5},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 1, "tid": 1, "ts": 1000.0, "dur": 200},
        {"ph": "X", "cat": "cpu_op", "name": "aten::conv", "pid": 1, "tid": 1, "ts": 1010, "dur": 100, "args": {"Ev Idx": 3}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1020, "dur": 30},
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 2, "ts": 1220, "dur": 50},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1025, "dur": 5, "args": {"correlation": 4}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1205, "dur": 5, "args": {"correlation": 5}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 900, "dur": 50},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1100, "dur": 40, "args": {"correlation": 3, "stream": 7}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1210, "dur": 40, "args": {"correlation": 4, "stream": 7}},
        {"ph": "X", "cat": "kernel", "name": "relu", "pid": 0, "tid": 7, "ts": 1270, "dur": 10, "args": {"correlation": 5, "stream": 7}},
        {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 0, "tid": 9, "ts": 1275, "dur": 25, "args": {"correlation": 5, "stream": 9}},
        {"ph": "i", "cat": "cpu_op", "name": "instant", "pid": "Traces", "tid": "Trace", "ts": 1, "s": "g"}
    ]}"#;

    fn summary_of_steps(numbers: &[u64]) -> TraceSummary {
        let trace = read(TRACE.as_bytes()).unwrap();
        let steps = device_steps(&trace);
        summary(&trace, &steps.iter().filter(|step| numbers.contains(&step.number)).collect::<Vec<_>>())
    }

    fn rows(summary: &TraceSummary) -> Vec<(&str, u64, u64, u64)> {
        summary
            .rows
            .iter()
            .map(|row| (row.name.as_str(), row.nanos / 1_000, row.calls, row.gap_nanos / 1_000))
            .collect()
    }

    #[test]
    fn a_kernel_belongs_to_the_step_that_launched_it_and_has_the_gap_before_it() {
        let both = summary_of_steps(&[7, 8]);
        let expected = [
            (OUTSIDE, 195, 2, 0),
            ("aten::add", 75, 2, 0),
            ("aten::conv", 70, 1, 0),
            ("gemm", 40, 1, 0),
            ("Memset (Device)", 25, 1, 0),
            ("cudaLaunchKernel", 10, 2, 0),
            ("relu", 10, 1, 20),
        ];
        assert_eq!(rows(&both), expected, "what was launched or began before the first step does not count");
        let totals = both.totals();
        assert_eq!((totals.steps, totals.step_nanos, totals.operator_nanos), (2, 45_000.0, 72_500.0));
        assert_eq!((totals.kernel_nanos, totals.gap_nanos), (Some(37_500.0), Some(10_000.0)));
    }

    #[test]
    fn only_the_steps_that_count_are_summed() {
        let last = summary_of_steps(&[8]);
        assert_eq!((last.steps, last.step_nanos), (1, 50_000));
        let expected = [
            (OUTSIDE, 95, 1, 0),
            ("aten::add", 50, 1, 0),
            ("Memset (Device)", 25, 1, 0),
            ("relu", 10, 1, 0),
            ("cudaLaunchKernel", 5, 1, 0),
        ];
        assert_eq!(rows(&last), expected);
    }

    #[test]
    fn a_trace_without_steps_counts_whole() {
        let unmarked = TRACE.replace("ProfilerStep#", "step ");
        let trace = read(unmarked.as_bytes()).unwrap();
        let whole = summary(&trace, &device_steps(&trace).iter().collect::<Vec<_>>());
        assert_eq!(
            (whole.steps, whole.step_nanos),
            (1, 90_000),
            "from its first launched kernel to its last"
        );
        assert!(rows(&whole).contains(&("aten::add", 125, 3, 0)), "{whole:?}");
    }
}
