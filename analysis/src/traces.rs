//! Traces by PyTorch's profiler: the self time of each operator and kernel, and what differs between two ranks.

mod events;

use std::collections::{BTreeMap, HashSet};
use std::io::Read;

use wire::ids::{Rank, Step};
use wire::views::captures::{TraceComparison, TraceRow, TraceRowKind, TraceTotals};

use events::{Category, Event, Events};

/// The largest number of rows of a comparison.
const MAX_ROWS: usize = 50;
/// The smallest difference of a row, in nanoseconds per step: the profiler's own cost per event is of this order.
const LEAST_NANOS: f64 = 1_000.0;
/// The name of the row for the time outside of all operators.
pub const OUTSIDE: &str = "(outside of operators)";

/// The reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The text is not a trace.
    #[error("the trace cannot be read: {0}")]
    Content(#[from] serde_json::Error),
    /// The trace has too many events.
    #[error("the trace has more than {0} events: trace fewer steps")]
    TooManyEvents(usize),
    /// No step is marked in the trace.
    #[error("the trace marks no step (ProfilerStep#N)")]
    NoSteps,
}

/// A trace in sums per step.
#[derive(Clone, Debug)]
pub struct Summary {
    totals: TraceTotals,
    /// Self time in nanoseconds and calls, in all steps together.
    sums: BTreeMap<(TraceRowKind, String), (f64, u64)>,
}

/// Reads a trace, which is JSON in the format of Chrome.
///
/// # Errors
/// Returns an error if it cannot be read or marks no steps.
pub fn summary(trace: impl Read) -> Result<Summary, TraceError> {
    let mut events = events::read(trace)?;
    let (begin, end, steps) = window(&events)?;
    let launched = launched(&events, (begin, end));
    let has_launches = !launched.is_empty();
    let in_window = |event: &Event| (begin..end).contains(&event.begin);
    events.list.retain(|event| match event.category {
        // A kernel belongs to the step that launched it. Without its launch, to the one in which it ran.
        Category::Device if has_launches => launched.contains(&event.correlation),
        _ => in_window(event),
    });
    let (gap_nanos, kernel_nanos) = device_times(&events);
    let sums = self_times(&mut events);
    let per_step = |nanos: f64| nanos / f64::from(steps);
    let of_kind = |kind: TraceRowKind| {
        let of_kind = sums.iter().filter(|((found, _), _)| *found == kind);
        // The sum of nothing would be -0.
        per_step(of_kind.fold(0.0, |sum, (_, (nanos, _))| sum + nanos))
    };
    let totals = TraceTotals {
        steps,
        step_nanos: per_step(end - begin),
        operator_nanos: of_kind(TraceRowKind::Operator),
        outside_nanos: of_kind(TraceRowKind::Outside),
        kernel_nanos: kernel_nanos.map(per_step),
        gap_nanos: gap_nanos.map(per_step),
    };
    Ok(Summary { totals, sums })
}

/// Compares the trace of a rank, which begins with `first_step`, with that of another.
#[must_use]
pub fn compare(
    (rank, own): (Rank, &Summary),
    (against, other): (Rank, &Summary),
    first_step: Step,
) -> TraceComparison {
    let names: HashSet<&(TraceRowKind, String)> = own.sums.keys().chain(other.sums.keys()).collect();
    let of = |summary: &Summary, key: &(TraceRowKind, String)| {
        let (nanos, calls) = summary.sums.get(key).copied().unwrap_or_default();
        let steps = f64::from(summary.totals.steps);
        (nanos / steps, calls as f64 / steps)
    };
    let row = |key: &(TraceRowKind, String)| {
        let ((own_nanos, own_calls), (other_nanos, other_calls)) = (of(own, key), of(other, key));
        TraceRow { kind: key.0, name: key.1.clone(), own_nanos, other_nanos, own_calls, other_calls }
    };
    let mut rows: Vec<TraceRow> = names.into_iter().map(row).collect();
    rows.retain(|row| row.difference().abs() >= LEAST_NANOS);
    rows.sort_by(|a, b| {
        b.difference().abs().total_cmp(&a.difference().abs()).then_with(|| a.name.cmp(&b.name))
    });
    let left_out = rows.len().saturating_sub(MAX_ROWS) as u64;
    rows.truncate(MAX_ROWS);
    rows.sort_by(|a, b| b.difference().total_cmp(&a.difference()).then_with(|| a.name.cmp(&b.name)));
    TraceComparison { rank, against, first_step, own: own.totals, other: other.totals, rows, left_out }
}

/// Returns the begin of the first step, the end of the last, and the number of steps.
fn window(events: &Events) -> Result<(f64, f64, u32), TraceError> {
    let steps: Vec<&Event> = events.list.iter().filter(|event| event.category == Category::Step).collect();
    let begin = steps.iter().map(|step| step.begin).fold(f64::INFINITY, f64::min);
    let end = steps.iter().map(|step| step.end).fold(f64::NEG_INFINITY, f64::max);
    let count = steps.iter().map(|step| step.name).collect::<HashSet<u32>>().len();
    if count == 0 || end <= begin {
        return Err(TraceError::NoSteps);
    }
    Ok((begin, end, count as u32))
}

/// Returns the correlations of the launches within the steps.
fn launched(events: &Events, (begin, end): (f64, f64)) -> HashSet<u64> {
    let runtime =
        events.list.iter().filter(|event| event.category == Category::Runtime && event.correlation != 0);
    runtime.filter(|event| (begin..end).contains(&event.begin)).map(|event| event.correlation).collect()
}

/// Returns the time between the first and the last kernel in which none runs, and the sum of the kernels, in nanoseconds.
fn device_times(events: &Events) -> (Option<f64>, Option<f64>) {
    let mut kernels: Vec<(f64, f64)> = events
        .list
        .iter()
        .filter(|event| event.category == Category::Device)
        .map(|event| (event.begin, event.end))
        .collect();
    kernels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(&(_, mut reached)) = kernels.first() else { return (None, None) };
    let mut gaps = 0.0;
    for &(begin, end) in &kernels {
        gaps += (begin - reached).max(0.0);
        reached = reached.max(end);
    }
    (Some(gaps), Some(kernels.iter().map(|(begin, end)| end - begin).sum()))
}

/// Returns the self time and the calls of each name. On a thread, what lies within an event is not part of its self time.
fn self_times(events: &mut Events) -> BTreeMap<(TraceRowKind, String), (f64, u64)> {
    // Of two events that begin together, the longer one contains the other.
    events.list.sort_by(|a, b| {
        a.thread.cmp(&b.thread).then(a.begin.total_cmp(&b.begin)).then(b.end.total_cmp(&a.end))
    });
    let mut sums: BTreeMap<(TraceRowKind, u32), (f64, u64)> = BTreeMap::new();
    let mut add = |event: &Event, nanos: f64, calls: u64| {
        // All steps have one row.
        let name = if event.category == Category::Step { events::STEP } else { event.name };
        let sum = sums.entry((event.category.kind(), name)).or_default();
        (sum.0, sum.1) = (sum.0 + nanos, sum.1 + calls);
    };
    // The events that contain the current one, outermost first, with the end up to which each is cut.
    let mut around: Vec<(&Event, f64)> = Vec::new();
    for event in &events.list {
        if event.category == Category::Device {
            add(event, event.end - event.begin, 1);
            continue;
        }
        while around.last().is_some_and(|(outer, end)| outer.thread != event.thread || *end <= event.begin) {
            around.pop();
        }
        // Times are rounded, so an event may seem to end after the one that contains it.
        let end = around.last().map_or(event.end, |(_, end)| event.end.min(*end));
        if let Some((outer, _)) = around.last() {
            add(outer, event.begin - end, 0);
        }
        add(event, end - event.begin, 1);
        around.push((event, end));
    }
    let named = |((kind, name), sum): ((TraceRowKind, u32), (f64, u64))| {
        let name = if kind == TraceRowKind::Outside { OUTSIDE } else { events.names.get(name) };
        ((kind, name.to_owned()), sum)
    };
    sums.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests;
