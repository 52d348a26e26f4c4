//! Summaries of traces: the self time of each operator, range and kernel of a rank.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

/// The largest number of rows of a summary, over all kinds.
pub const MAX_TRACE_ROWS: usize = 1_024;
/// The longest name of a row, in bytes.
pub const MAX_TRACE_NAME_BYTES: usize = 400;
/// The name of the row for the time outside of all operators.
pub const OUTSIDE: &str = "(outside of operators)";
/// The name of the row for all that is beyond [`MAX_TRACE_ROWS`].
pub const OTHER_NAMES: &str = "(other names)";

/// What ran in some steps of a rank, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceSummary {
    /// The number of steps. If the summary is of several ranks, each step counts once for each of them.
    pub steps: u32,
    /// The duration of these steps together, in nanoseconds.
    pub step_nanos: u64,
    /// The rows, the longest first. No kind has two rows of one name.
    pub rows: Vec<TraceSum>,
}

/// What an operator, range or kernel took in all steps together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceSum {
    /// What it is.
    pub kind: TraceRowKind,
    /// Its name.
    pub name: String,
    /// Its self time, in nanoseconds.
    pub nanos: u64,
    /// How often it ran.
    pub calls: u64,
    /// Of a kernel: how long the device ran nothing just before it, in nanoseconds. 0 for all others.
    pub gap_nanos: u64,
}

impl TraceSum {
    /// Adds what another row of the same kind and name took.
    pub fn add(&mut self, other: &Self) {
        self.nanos = self.nanos.saturating_add(other.nanos);
        self.calls = self.calls.saturating_add(other.calls);
        self.gap_nanos = self.gap_nanos.saturating_add(other.gap_nanos);
    }
}

impl TraceSummary {
    /// Returns the totals per step.
    #[must_use]
    pub fn totals(&self) -> TraceTotals {
        let per_step = |nanos: u64| nanos as f64 / f64::from(self.steps.max(1));
        let rows = |kind| self.rows.iter().filter(move |row| row.kind == kind);
        let self_time = |kind| rows(kind).map(|row| row.nanos).sum::<u64>();
        let has_kernels = rows(TraceRowKind::Kernel).next().is_some();
        let kernel_time = |nanos: u64| has_kernels.then(|| per_step(nanos));
        TraceTotals {
            steps: self.steps,
            step_nanos: per_step(self.step_nanos),
            operator_nanos: per_step(self_time(TraceRowKind::Operator)),
            outside_nanos: per_step(self_time(TraceRowKind::Outside)),
            kernel_nanos: kernel_time(self_time(TraceRowKind::Kernel)),
            gap_nanos: kernel_time(rows(TraceRowKind::Kernel).map(|row| row.gap_nanos).sum()),
        }
    }

    /// Returns the approximate size, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|row| size_of_val(row) + row.name.len()).sum()
    }
}

/// Returns at most `most` rows, the longest first. What is left out of a kind becomes its row [`OTHER_NAMES`].
#[must_use]
pub fn longest(mut rows: Vec<TraceSum>, most: usize) -> Vec<TraceSum> {
    let sort = |rows: &mut Vec<TraceSum>| {
        rows.sort_by(|a, b| (Reverse(a.nanos), a.kind, &a.name).cmp(&(Reverse(b.nanos), b.kind, &b.name)));
    };
    sort(&mut rows);
    if rows.len() <= most {
        return rows;
    }
    let left_out = rows.split_off(most.saturating_sub(TraceRowKind::ALL.len()));
    for row in left_out {
        match rows.iter_mut().find(|known| known.kind == row.kind && known.name == OTHER_NAMES) {
            Some(known) => known.add(&row),
            None => rows.push(TraceSum { name: OTHER_NAMES.to_owned(), ..row }),
        }
    }
    sort(&mut rows);
    rows
}

/// The totals of a trace, per step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceTotals {
    /// The number of steps in the trace.
    pub steps: u32,
    /// The duration of a step.
    pub step_nanos: f64,
    /// The self time of operators on all threads.
    pub operator_nanos: f64,
    /// The part of the step in which its thread runs no operator: Python, and waits.
    pub outside_nanos: f64,
    /// The time of kernels, copies and fills on the device; `None` if the trace has none.
    pub kernel_nanos: Option<f64>,
    /// The launch gaps: the time from the first to the last kernel in which the device runs none; `None` if the trace has
    /// none.
    pub gap_nanos: Option<f64>,
}

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum TraceRowKind {
    /// An operator, by its self time.
    Operator = 0,
    /// A range that the job or PyTorch names, by the time in which no operator runs in it.
    Range = 1,
    /// A call of the device's runtime or driver.
    Runtime = 2,
    /// A kernel, copy or fill on the device.
    Kernel = 3,
    /// The rest of the step, in which its thread runs none of these.
    Outside = 4,
}

impl TraceRowKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 5] = [Self::Operator, Self::Range, Self::Runtime, Self::Kernel, Self::Outside];

    /// Returns the kind in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Range => "range",
            Self::Runtime => "runtime call",
            Self::Kernel => "kernel",
            Self::Outside => "outside of operators",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_limit_becomes_one_row_of_its_kind() {
        let row = |kind, at: u64| TraceSum { kind, name: at.to_string(), nanos: at, calls: 1, gap_nanos: 2 };
        let kinds = [TraceRowKind::Kernel, TraceRowKind::Operator];
        let rows: Vec<TraceSum> = (1..=10).flat_map(|at| kinds.map(|kind| row(kind, at))).collect();
        assert_eq!(longest(rows.clone(), 20).len(), 20);
        let shown = longest(rows, 9);
        let shown: Vec<_> = shown
            .iter()
            .map(|row| (row.kind, row.name.as_str(), row.nanos, row.calls, row.gap_nanos))
            .collect();
        let (operator, kernel) = (TraceRowKind::Operator, TraceRowKind::Kernel);
        let expected = [
            (operator, OTHER_NAMES, 36, 8, 16),
            (kernel, OTHER_NAMES, 36, 8, 16),
            (operator, "10", 10, 1, 2),
            (kernel, "10", 10, 1, 2),
            (operator, "9", 9, 1, 2),
            (kernel, "9", 9, 1, 2),
        ];
        assert_eq!(shown, expected);
    }
}
