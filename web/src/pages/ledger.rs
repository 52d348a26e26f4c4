//! The step ledger as a table with one row per rank.

use leptos::prelude::*;
use wire::live::Part;
use wire::views::RankLedger;

use super::run::RunId;
use crate::cells::derived;
use crate::live::Live;
use crate::route::{Router, Tab};
use crate::table::{Column, Rows, table};

/// The number of columns before those of the parts: rank, bar, step time.
const BEFORE_PARTS: usize = 3;

/// Creates the table.
pub fn ledger_table() -> AnyView {
    let live = expect_context::<Live>();
    let run = expect_context::<RunId>();
    let router = expect_context::<Router>();
    let read = move |at: usize, read: &dyn Fn(&RankLedger, f64) -> String| {
        live.run
            .with(|run| {
                let report = &run.as_ref()?.report;
                Some(read(report.ledger.get(at)?, report.steps.max(1) as f64))
            })
            .unwrap_or_default()
    };
    let cell = move |at: usize, column: usize| {
        read(at, &|ledger, steps| match column {
            0 => ledger.rank.to_string(),
            2 => units::nanos(ledger.step_nanos as f64 / steps),
            _ => units::percent(share(ledger, column - BEFORE_PARTS)),
        })
    };
    let shares = move |at: usize| {
        live.run.with(|run| {
            let ledger = run.as_ref().and_then(|run| run.report.ledger.get(at));
            ledger.map_or([0.0; 8], |ledger| std::array::from_fn(|part| share(ledger, part)))
        })
    };
    let choose = move |at: usize| {
        let rank = read(at, &|ledger, _| ledger.rank.to_string());
        router.go(&format!("{}?rank={rank}", Tab::Ranks.path(&run.get())));
    };
    let columns = [Column::Number("Rank"), Column::Parts, Column::Number("Step time")]
        .into_iter()
        .chain(Part::ALL.map(|part| Column::Number(part.name())))
        .collect();
    let count = derived(move || live.run.with(|run| run.as_ref().map_or(0, |r| r.report.ledger.len())));
    let rows = Rows { shares: Some(Box::new(shares)), ..Rows::new(count, cell).choosing(|_| false, choose) };
    view! {
        <section class="panel" aria-label="Step ledger by rank">
            <div class="panel-head">
                <h2>"Step ledger by rank"<small>" mean step time and the share of each part, over the observed steps"</small></h2>
            </div>
            {table("ledger-table", "Step ledger by rank".to_owned().into(), columns, rows)}
        </section>
    }
    .into_any()
}

fn share(ledger: &RankLedger, part: usize) -> f64 {
    ledger.parts()[part] as f64 / ledger.step_nanos.max(1) as f64
}
