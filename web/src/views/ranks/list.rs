//! All ranks by cost: the figure of each over the observed steps, against the median rank.

use leptos::prelude::*;
use model::ranks::{RankCost, costs, matches};

use super::RanksSelection;
use crate::live::Live;
use crate::table::{Choice, Column, Table};

/// A rank of the list.
#[derive(Clone)]
struct Row {
    cost: RankCost,
    /// The figure as a share of the largest one.
    share: f64,
    is_pinned: bool,
}

/// The list, worst first.
#[component]
pub fn RankList(selection: RanksSelection) -> impl IntoView {
    let live = expect_context::<Live>();
    let search = RwSignal::new(String::new());
    let rows = Signal::derive(move || {
        let Some(run) = live.run.get() else { return Vec::new() };
        let (costs, pinned) = (costs(&run.report, selection.measure.get()), selection.pinned.get());
        let most = costs.first().map_or(1.0, |cost| cost.nanos.max(1.0));
        let search = search.get();
        costs
            .into_iter()
            .filter(|cost| matches(&search, cost.rank, &cost.host))
            .map(|cost| Row { share: cost.nanos / most, is_pinned: pinned.contains(&cost.rank), cost })
            .collect()
    });
    let measure = move || selection.measure.get().name();
    let columns = vec![
        Column::number("Rank", |row: &Row| (f64::from(row.cost.rank), row.cost.rank.to_string())),
        Column::text("Host", |row: &Row| row.cost.host.clone()),
        Column::bar("", |row: &Row| row.share),
        Column::number("Mean", |row: &Row| (row.cost.nanos, units::nanos(row.cost.nanos))),
        Column::number("Against the median rank", |row: &Row| {
            (row.cost.excess_nanos, units::signed_nanos(row.cost.excess_nanos))
        }),
        Column::text("Pinned", |row: &Row| if row.is_pinned { "pinned".into() } else { String::new() }),
    ];
    let choice = Choice::new(
        move |row: &Row| selection.rank.get() == Some(row.cost.rank),
        move |row: Row| selection.select_rank(row.cost.rank),
    );
    let pin = move |_| {
        if let Some(rank) = selection.rank.get_untracked() {
            selection.toggle_pin(rank);
        }
    };
    let pin_label = move || match selection.rank.get() {
        Some(rank) if selection.pinned.with(|pinned| pinned.contains(&rank)) => format!("Unpin rank {rank}"),
        Some(rank) => format!("Pin rank {rank}"),
        None => "Select a rank to pin it".into(),
    };
    view! {
        <section class="panel" aria-label="Ranks by cost">
            <div class="panel-head">
                <h2>"Ranks by "{measure}<small>" mean over the observed steps, worst first"</small></h2>
                <span class="grow"></span>
                <button data-testid="pin" disabled=move || selection.rank.get().is_none() on:click=pin>{pin_label}</button>
                <label class="field">
                    <span>"Search"</span>
                    <input
                        type="search"
                        placeholder="rank or host"
                        data-testid="rank-search"
                        on:input=move |event| search.set(event_target_value(&event))
                    />
                </label>
            </div>
            <Table testid="rank-list" caption="Ranks by cost" columns=columns rows=rows choice=choice />
        </section>
    }
}
