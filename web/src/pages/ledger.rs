//! The step ledger as a table: one line a rank.

use leptos::prelude::*;
use viz::units;
use wire::live::Part;
use wire::views::RankLedger;

use super::run::RunId;
use crate::live::Live;
use crate::route::Tab;
use crate::table::Rows;
use crate::widgets::PartsBar;

/// The table.
#[component]
pub fn LedgerTable() -> impl IntoView {
    let live = expect_context::<Live>();
    let ledgers = Memo::new(move |_| {
        live.run.with(|run| {
            run.as_ref().map(|run| (run.report.ledger.clone(), run.report.steps)).unwrap_or_default()
        })
    });
    let count = Signal::derive(move || ledgers.with(|(ledgers, _)| ledgers.len()));
    let columns = [("Rank", true), ("", false), ("Step time", true)]
        .into_iter()
        .chain(Part::ALL.map(|part| (part.name(), true)))
        .collect();
    view! {
        <section class="panel" aria-label="Step ledger by rank">
            <div class="panel-head">
                <h2>"Step ledger by rank"<small>" shares of each rank's own step, over the observed steps"</small></h2>
            </div>
            <Rows testid="ledger-table" caption="Step ledger by rank" columns=columns count=count
                row=move |at| view! { <Row at=at ledgers=ledgers /> } />
        </section>
    }
}

#[component]
fn Row(at: usize, ledgers: Memo<(Vec<RankLedger>, u64)>) -> impl IntoView {
    let run = expect_context::<RunId>();
    let ledger = Memo::new(move |_| ledgers.with(|(all, _)| all.get(at).copied().unwrap_or_default()));
    let per_step = move |ns: u64| ledgers.with(|(_, steps)| ns as f64 / (*steps).max(1) as f64);
    let shares = Signal::derive(move || {
        let ledger = ledger.get();
        ledger.parts().map(|ns| ns as f64 / ledger.step_ns.max(1) as f64)
    });
    let link = move || format!("{}?rank={}", Tab::Ranks.path(&run.get()), ledger.get().rank);
    view! {
        <tr>
            <th scope="row" class="number"><a href=link>{move || ledger.get().rank.0}</a></th>
            <td class="bar-cell"><PartsBar shares=shares /></td>
            <td class="number">{move || units::nanos(per_step(ledger.get().step_ns))}</td>
            {Part::ALL
                .map(|part| {
                    let title = move || units::nanos(per_step(ledger.get().parts()[part as usize])) + " per step";
                    let share = move || units::percent(shares.get()[part as usize]);
                    view! { <td class="number" title=title>{share}</td> }
                })
                .collect_view()}
        </tr>
    }
}
