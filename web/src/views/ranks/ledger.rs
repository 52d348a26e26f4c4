//! The step ledger as a table with one row per rank.

use std::sync::Arc;

use leptos::prelude::*;
use model::route::Tab;
use wire::live::Part;
use wire::views::{RankLedger, Report};

use crate::periods::steps;
use crate::route::{Address, RunId};
use crate::table::{Choice, Column, Table};

/// The mean step of one rank.
#[derive(Clone, PartialEq)]
struct Row {
    rank: u32,
    step_nanos: f64,
    shares: [f64; Part::COUNT],
}

impl Row {
    fn new(ledger: &RankLedger, steps: u64) -> Self {
        let all = ledger.step_nanos.max(1) as f64;
        Self {
            rank: ledger.rank.0,
            step_nanos: ledger.step_nanos as f64 / steps.max(1) as f64,
            shares: ledger.parts().map(|nanos| nanos as f64 / all),
        }
    }
}

#[component]
pub fn LedgerTable(report: Signal<Option<Arc<Report>>>) -> impl IntoView {
    let run = expect_context::<RunId>();
    let address = expect_context::<Address>();
    let rows = Signal::derive(move || {
        let Some(report) = report.get() else { return Vec::new() };
        let mut ledgers: Vec<&RankLedger> = report.ledger.iter().collect();
        ledgers.sort_by_key(|ledger| (std::cmp::Reverse(ledger.own_nanos()), ledger.rank));
        ledgers.into_iter().map(|ledger| Row::new(ledger, report.steps)).collect()
    });
    let steps_shown = move || report.get().and_then(|report| steps(&report)).unwrap_or_default();
    let has_idle = Memo::new(move |_| report.get().is_some_and(|report| report.has_idle()));
    let table = move || {
        let choice = Choice::new(
            |_| false,
            move |row: Row| {
                let url = format!("{}?rank={}", Tab::Ranks.path(&run.get_untracked()), row.rank);
                address.go(&untrack(|| address.keeping(&url)));
            },
        );
        view! {
            <Table testid="ledger-table" caption="Step ledger by rank" columns=columns(has_idle.get()) rows=rows key=|row: &Row| row.rank choice=choice />
        }
    };
    view! {
        <section class="panel" aria-label="Step ledger by rank">
            <div class="panel-head">
                <h2>
                    "Step ledger by rank"
                    <small>" mean step time and the share of each part, "{steps_shown}"; most local work first"</small>
                </h2>
            </div>
            {table}
        </section>
    }
}

fn columns(has_idle: bool) -> Vec<Column<Row>> {
    let mut columns = vec![
        Column::number("Rank", |row: &Row| (f64::from(row.rank), row.rank.to_string())),
        Column::parts(|row: &Row| row.shares),
        Column::number("Step time", |row: &Row| (row.step_nanos, units::nanos(row.step_nanos))),
    ];
    columns.extend(Part::stacked(has_idle).map(|part| {
        Column::number(part.name(), move |row: &Row| {
            let share = row.shares[part as usize];
            (share, units::percent(share))
        })
    }));
    columns
}
