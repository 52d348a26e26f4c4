//! What differs between the traces of two ranks, or of two runs: the self time of each operator, range and kernel.

use std::collections::BTreeMap;

use wire::ids::{Rank, Step};
use wire::traces::{MAX_TRACE_ROWS, OTHER_NAMES, TraceRowKind, TraceSum, TraceSummary, longest};
use wire::views::captures::{TraceComparison, TraceRow};

/// The largest number of rows of a comparison.
const MAX_ROWS: usize = 50;
/// The smallest difference of a row, in nanoseconds per step: the profiler's own cost per event is of this order.
const LEAST_NANOS: f64 = 1_000.0;

/// Compares the trace of a rank, which begins with `first_step`, with that of another.
#[must_use]
pub fn compare(
    (rank, own): (Rank, &TraceSummary),
    (against, other): (Rank, &TraceSummary),
    first_step: Step,
) -> TraceComparison {
    let (rows, left_out) = differences(own, other);
    TraceComparison { rank, against, first_step, own: own.totals(), other: other.totals(), rows, left_out }
}

/// Returns what takes longer in one of two summaries, per step: at most 50 rows, what takes `own` longest in addition first. Also
/// returns the number of rows that differ less.
///
/// A name that one of them does not list counts only if it lists all of its kind.
#[must_use]
pub fn differences(own: &TraceSummary, other: &TraceSummary) -> (Vec<TraceRow>, u64) {
    let (own_rows, other_rows) = (rows_by_name(own), rows_by_name(other));
    let mut rows: Vec<TraceRow> = own_rows
        .keys()
        .chain(other_rows.keys().filter(|key| !own_rows.contains_key(*key)))
        .filter(|key| is_known(&own_rows, **key) && is_known(&other_rows, **key))
        .map(|key| row(*key, (own.steps, own_rows.get(key)), (other.steps, other_rows.get(key))))
        .filter(|row| row.difference().abs() >= LEAST_NANOS)
        .collect();
    rows.sort_by(|a, b| {
        b.difference().abs().total_cmp(&a.difference().abs()).then_with(|| a.name.cmp(&b.name))
    });
    let left_out = rows.len().saturating_sub(MAX_ROWS) as u64;
    rows.truncate(MAX_ROWS);
    rows.sort_by(|a, b| b.difference().total_cmp(&a.difference()).then_with(|| a.name.cmp(&b.name)));
    (rows, left_out)
}

type Key<'a> = (TraceRowKind, &'a str);

fn rows_by_name(summary: &TraceSummary) -> BTreeMap<Key<'_>, &TraceSum> {
    summary.rows.iter().map(|row| ((row.kind, row.name.as_str()), row)).collect()
}

/// Returns whether a summary says how long something took: it lists it, or all of its kind.
fn is_known(rows: &BTreeMap<Key<'_>, &TraceSum>, key: Key<'_>) -> bool {
    rows.contains_key(&key) || !rows.contains_key(&(key.0, OTHER_NAMES))
}

fn row(key: Key<'_>, own: (u32, Option<&&TraceSum>), other: (u32, Option<&&TraceSum>)) -> TraceRow {
    let per_step = |(steps, sum): (u32, Option<&&TraceSum>)| {
        let mean = |value: u64| value as f64 / f64::from(steps.max(1));
        sum.map_or((0.0, 0.0, 0.0), |sum| (mean(sum.nanos), mean(sum.calls), mean(sum.gap_nanos)))
    };
    let ((own_nanos, own_calls, own_gap_nanos), (other_nanos, other_calls, other_gap_nanos)) =
        (per_step(own), per_step(other));
    let (kind, name) = (key.0, key.1.to_owned());
    TraceRow { kind, name, own_nanos, other_nanos, own_calls, other_calls, own_gap_nanos, other_gap_nanos }
}

/// Returns the summary of several ranks together; `None` if there are none. Each step counts once for each rank.
#[must_use]
pub fn merged<'a>(summaries: impl Iterator<Item = &'a TraceSummary>) -> Option<TraceSummary> {
    let (mut all, mut sums) = (None::<TraceSummary>, BTreeMap::<Key<'_>, TraceSum>::new());
    for summary in summaries {
        let all = all.get_or_insert_default();
        all.steps = all.steps.saturating_add(summary.steps);
        all.step_nanos = all.step_nanos.saturating_add(summary.step_nanos);
        for row in &summary.rows {
            let key = (row.kind, row.name.as_str());
            sums.entry(key).and_modify(|sum| sum.add(row)).or_insert_with(|| row.clone());
        }
    }
    all.map(|all| TraceSummary { rows: longest(sums.into_values().collect(), MAX_TRACE_ROWS), ..all })
}

#[cfg(test)]
mod tests;
