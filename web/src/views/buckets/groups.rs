//! The cost of collectives by group, in jobs with several kinds of parallelism.

use analysis::wording::groups::{self, GroupRow};
use leptos::prelude::*;

use crate::live::Live;
use crate::table::{Column, Table};

/// The table; nothing if all collectives are among all ranks.
#[component]
pub fn Groups() -> impl IntoView {
    let live = expect_context::<Live>();
    let rows = Memo::new(move |_| {
        let report = live.run.get();
        report.map(|run| groups::rows(&run.report.groups, run.report.ranks)).unwrap_or_default()
    });
    let left_out = move || {
        let count = live.run.with(|run| run.as_ref().map_or(0, |run| groups::left_out(&run.report.groups)));
        (count > 0).then(|| view! { <p class="quiet">{count}" more rows are not shown."</p> })
    };
    let time = |name: &'static str, read: fn(&GroupRow) -> f64| {
        Column::number(name, move |row: &GroupRow| (read(row), units::nanos(read(row))))
    };
    let columns = move || {
        vec![
            Column::text("Group", |row: &GroupRow| row.name.clone()),
            Column::text("Functions", |row: &GroupRow| row.functions.clone()),
            Column::number("Collectives", |row: &GroupRow| {
                (row.cost.collectives, format!("{:.1}", row.cost.collectives))
            }),
            Column::number("Size", |row: &GroupRow| {
                (row.cost.bytes, units::bytes(row.cost.bytes.round() as u64))
            }),
            time("Time", |row| row.cost.comm_nanos),
            Column::number("Exposed", |row: &GroupRow| match row.cost.exposed_nanos {
                Some(nanos) => (nanos, units::nanos(nanos)),
                None => (f64::NAN, "—".into()),
            }),
            time("Wait", |row| row.cost.wait_nanos),
            Column::text("Latest rank", |row: &GroupRow| row.latest.clone()),
        ]
    };
    let introduction =
        " Means per rank and step, over all groups of a shape and then per group, longest wait first.";
    view! {
        <Show when=move || rows.with(|rows| !rows.is_empty())>
            <section class="panel" aria-label="Groups" data-testid="groups">
                <div class="panel-head"><h2>"Groups"<small>{introduction}</small></h2></div>
                <Table testid="groups-table" caption="Cost of collectives by group" columns=columns() rows=rows key=|row: &GroupRow| (row.name.clone(), row.functions.clone()) />
                {left_out}
            </section>
        </Show>
    }
}
