//! The table of operators, ranges and kernels of an imported run.

use units::{decimal, nanos, percent};
use wire::traces::{TraceRowKind, TraceSum};
use wire::views::Report;

use super::tables::{head, section};
use super::{Cell, Section, Table};
use crate::export::kernel_name::shortened;

/// The number of kernels in the table, and that of operators and ranges together.
const MOST: usize = 8;

/// Returns the longest kernels, and the longest operators and ranges, per step and rank.
pub(super) fn traced(report: &Report) -> Option<Section> {
    let summary = report.traced.as_ref()?;
    let totals = summary.totals();
    let per_step = |value: u64| value as f64 / f64::from(summary.steps.max(1));
    let row = |sum: &&TraceSum| -> Vec<Cell> {
        let is_kernel = sum.kind == TraceRowKind::Kernel;
        // The host works on several threads, and ahead of the device.
        let kernels_only = |text: String| if is_kernel { text } else { String::new() };
        vec![
            shortened(&sum.name).into(),
            sum.kind.name().into(),
            nanos(per_step(sum.nanos)).into(),
            kernels_only(percent(per_step(sum.nanos) / totals.step_nanos.max(1.0))).into(),
            decimal(per_step(sum.calls), 1).into(),
            kernels_only(nanos(per_step(sum.gap_nanos))).into(),
        ]
    };
    let rows_of = |is_kernel: bool| {
        summary.rows.iter().filter(move |sum| (sum.kind == TraceRowKind::Kernel) == is_kernel)
    };
    let rows: Vec<_> = rows_of(true).take(MOST).chain(rows_of(false).take(MOST)).collect();
    let device = match totals.kernel_nanos.zip(totals.gap_nanos) {
        Some((kernels, gaps)) => {
            format!(
                " Kernels take {}, and launch gaps, in which the device runs nothing, {}.",
                nanos(kernels),
                nanos(gaps)
            )
        }
        None => String::new(),
    };
    let introduction = format!(
        "Mean per step and rank. Self time is without what runs within.{device} Kernels of several streams run at the same time."
    );
    let table = Table {
        head: head(&["name", "kind", "self time", "of the step", "calls", "gap before"]),
        rows: rows.iter().map(row).collect(),
        left_out: summary.rows.len() - rows.len(),
        ..Table::default()
    };
    section("Operators and kernels", vec![introduction], true, table)
}
