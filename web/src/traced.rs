//! Tables of operators, ranges and kernels, as traces have them.

use leptos::prelude::*;
use units::{nanos, signed_nanos};
use wire::traces::{TraceRowKind, TraceSummary};
use wire::views::captures::TraceRow;

use crate::table::{Column, Table};

/// What takes longer in one of two traces. `sides` are the headings of the compared one and of the other.
#[component]
pub fn Differences(rows: Vec<TraceRow>, sides: [&'static str; 2]) -> impl IntoView {
    // What one of the traces does not have takes no time there, and is not measured as 0.
    let time = |value: f64, calls: f64| (value, if calls == 0.0 { "—".into() } else { nanos(value) });
    let columns = vec![
        Column::name("Operator, range or kernel", |row: &TraceRow| row.name.clone()),
        Column::text("Kind", |row: &TraceRow| row.kind.name().to_owned()),
        Column::number("More", |row: &TraceRow| (row.difference(), signed_nanos(row.difference())))
            .meaning("how much longer it takes per step than in the other trace"),
        Column::number(sides[0], move |row: &TraceRow| time(row.own_nanos, row.own_calls))
            .meaning("self time per step: without what it calls"),
        Column::number(sides[1], move |row: &TraceRow| time(row.other_nanos, row.other_calls)),
        Column::number("Calls", |row: &TraceRow| {
            let calls =
                format!("{} · {}", units::decimal(row.own_calls, 1), units::decimal(row.other_calls, 1));
            (row.own_calls, calls)
        })
        .meaning("calls per step in the one trace and in the other"),
    ];
    view! {
        <Rows
            testid="traces-table"
            caption="Operators, ranges and kernels by how much longer they take in one of the traces"
            columns=columns
            rows=rows
        />
    }
}

/// What ran in the steps of a trace.
#[component]
pub fn Sums(summary: TraceSummary) -> impl IntoView {
    let totals = summary.totals();
    let whole = totals.step_nanos.max(1.0);
    let only_kernels = |row: &TraceRow, value: f64, text: String| match row.kind {
        TraceRowKind::Kernel => (value, text),
        _ => (f64::NAN, "—".into()),
    };
    let columns = vec![
        Column::name("Operator, range or kernel", |row: &TraceRow| row.name.clone()),
        Column::text("Kind", |row: &TraceRow| row.kind.name().to_owned()),
        Column::number("Self time", |row: &TraceRow| (row.own_nanos, nanos(row.own_nanos)))
            .meaning("per step: without what it calls"),
        Column::number("Of the step", move |row: &TraceRow| {
            only_kernels(row, row.own_nanos, units::percent(row.own_nanos / whole))
        })
        .meaning("of a kernel: its share of the step of the device"),
        Column::number("Calls", |row: &TraceRow| (row.own_calls, units::decimal(row.own_calls, 1)))
            .meaning("per step"),
        Column::number("Gap before", move |row: &TraceRow| {
            only_kernels(row, row.own_gap_nanos, nanos(row.own_gap_nanos))
        })
        .meaning("per step: how long the device ran nothing just before it"),
    ];
    let steps = summary.steps;
    view! {
        <Rows
            testid="traced-table"
            caption="Operators, ranges and kernels by their self time"
            columns=columns
            rows=summary.rows.into_iter().map(|sum| TraceRow::alone(sum, steps)).collect()
        />
    }
}

/// A table of rows. Both tables have rows of one type, because each type makes the page larger.
#[component]
fn Rows(
    testid: &'static str,
    caption: &'static str,
    columns: Vec<Column<TraceRow>>,
    rows: Vec<TraceRow>,
) -> impl IntoView {
    view! {
        <Table
            testid=testid
            caption=caption
            columns=columns
            rows=Signal::stored(rows)
            key=|row: &TraceRow| (row.kind, row.name.clone())
        />
    }
}
