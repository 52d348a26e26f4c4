//! All ranks, or all hosts, by cost: the figure of each over the observed steps, against the median rank.

use leptos::prelude::*;
use model::ranks::{HostCost, RankCost, by_host, costs};

use wire::live::tile::Measure;

use super::RanksSelection;
use crate::live::Live;
use crate::table::{Choice, Column, Table};

/// The list, worst first.
#[component]
pub fn RankList(selection: RanksSelection) -> impl IntoView {
    let live = expect_context::<Live>();
    let is_by_host = Memo::new(move |_| selection.address.param("list").as_deref() == Some("hosts"));
    let costs = Memo::new(move |_| {
        let costs = live.run.with(|run| run.as_ref().map(|run| costs(&run.report, selection.measure.get())));
        costs.unwrap_or_default()
    });
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
    let title = move || if is_by_host.get() { "Hosts by " } else { "Ranks by " };
    // Lateness has no sum over steps. What makes a rank late is its own work.
    let measure = move || match selection.measure.get() {
        Measure::Lateness => Measure::LocalWork.name(),
        measure => measure.name(),
    };
    let group = move |name: &'static str, by_host: bool| {
        let choose = move |_| selection.address.set([("list", by_host.then(|| "hosts".to_owned()))]);
        view! {
            <button aria-pressed=move || (is_by_host.get() == by_host).to_string() on:click=choose>{name}</button>
        }
    };
    view! {
        <section class="panel" aria-label="Ranks by cost">
            <div class="panel-head">
                <h2>{title}{measure}<small>" mean over the observed steps, worst first"</small></h2>
                <span class="grow"></span>
                <div class="segments" role="group" aria-label="Rows of the list" data-testid="list-rows">
                    {group("Ranks", false)} {group("Hosts", true)}
                </div>
                <button data-testid="pin" disabled=move || selection.rank.get().is_none() on:click=pin>{pin_label}</button>
            </div>
            <Show
                when=move || is_by_host.get()
                fallback=move || view! { <RankTable selection=selection costs=costs /> }
            >
                <HostTable selection=selection costs=costs />
            </Show>
        </section>
    }
}

/// A rank of the list.
#[derive(Clone, PartialEq)]
struct RankRow {
    cost: RankCost,
    /// The figure as a share of the largest one.
    share: f64,
    is_pinned: bool,
}

#[component]
fn RankTable(selection: RanksSelection, costs: Memo<Vec<RankCost>>) -> impl IntoView {
    let rows = Signal::derive(move || {
        let (costs, pinned) = (costs.get(), selection.pinned.get());
        let most = costs.first().map_or(1.0, |cost| cost.nanos.max(1.0));
        let row = |cost: RankCost| RankRow {
            share: cost.nanos / most,
            is_pinned: pinned.contains(&cost.rank),
            cost,
        };
        costs.into_iter().map(row).collect()
    });
    let columns = vec![
        Column::number("Rank", |row: &RankRow| (f64::from(row.cost.rank), row.cost.rank.to_string())),
        Column::text("Host", |row: &RankRow| row.cost.host.clone()),
        Column::bar("", |row: &RankRow| row.share),
        Column::number("Mean", |row: &RankRow| (row.cost.nanos, units::nanos(row.cost.nanos))),
        Column::number("Against the median rank", |row: &RankRow| {
            (row.cost.excess_nanos, units::signed_nanos(row.cost.excess_nanos))
        }),
        Column::text("Pinned", |row: &RankRow| if row.is_pinned { "pinned".into() } else { String::new() }),
    ];
    let choice = Choice::new(
        move |row: &RankRow| selection.rank.get() == Some(row.cost.rank),
        move |row: RankRow| selection.select_rank(row.cost.rank),
    );
    let key = |row: &RankRow| row.cost.rank;
    view! { <Table testid="rank-list" caption="Ranks by cost" columns=columns rows=rows key=key choice=choice /> }
}

/// A host of the list.
#[derive(Clone, PartialEq)]
struct HostRow {
    cost: HostCost,
    /// The figure as a share of the largest one.
    share: f64,
}

#[component]
fn HostTable(selection: RanksSelection, costs: Memo<Vec<RankCost>>) -> impl IntoView {
    let rows = Signal::derive(move || {
        let hosts = costs.with(|costs| by_host(costs));
        let most = hosts.first().map_or(1.0, |host| host.nanos.max(1.0));
        hosts.into_iter().map(|cost| HostRow { share: cost.nanos / most, cost }).collect()
    });
    let name = |row: &HostRow| {
        if row.cost.host.is_empty() { "unnamed".to_owned() } else { row.cost.host.clone() }
    };
    let columns = vec![
        Column::text("Host", name),
        Column::number("Ranks", |row: &HostRow| (row.cost.ranks as f64, units::count(row.cost.ranks as u64))),
        Column::bar("", |row: &HostRow| row.share),
        Column::number("Mean", |row: &HostRow| (row.cost.nanos, units::nanos(row.cost.nanos))),
        Column::number("Against the median rank", |row: &HostRow| {
            (row.cost.excess_nanos, units::signed_nanos(row.cost.excess_nanos))
        }),
        Column::number("Worst rank", |row: &HostRow| (f64::from(row.cost.worst), row.cost.worst.to_string())),
    ];
    let choice = Choice::new(
        move |row: &HostRow| selection.rank.get() == Some(row.cost.worst),
        move |row: HostRow| selection.select_rank(row.cost.worst),
    );
    let key = |row: &HostRow| row.cost.host.clone();
    view! { <Table testid="host-list" caption="Hosts by cost" columns=columns rows=rows key=key choice=choice /> }
}
