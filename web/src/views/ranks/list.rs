//! All ranks, hosts or devices by cost: the figure of each over the observed steps, against the median rank.

use leptos::prelude::*;
use model::ranks::{GroupCost, RankCost, costs, device_kind_costs, host_costs};

use wire::live::tile::Measure;

use super::RanksSelection;
use crate::periods::steps;
use crate::table::{Choice, Column, Table};

#[derive(Clone, Copy, PartialEq)]
enum Rows {
    Ranks,
    Hosts,
    /// Devices of one kind.
    Devices,
}

impl Rows {
    const ALL: [Self; 3] = [Self::Ranks, Self::Hosts, Self::Devices];

    /// Returns the name in the address.
    fn key(self) -> &'static str {
        match self {
            Self::Ranks => "ranks",
            Self::Hosts => "hosts",
            Self::Devices => "devices",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ranks => "Ranks",
            Self::Hosts => "Hosts",
            Self::Devices => "Devices",
        }
    }

    fn from_key(key: &str) -> Self {
        Self::ALL.into_iter().find(|rows| rows.key() == key).unwrap_or(Self::Ranks)
    }
}

/// The list, worst first.
#[component]
pub fn RankList(selection: RanksSelection) -> impl IntoView {
    let shown =
        Memo::new(move |_| Rows::from_key(&selection.cells.address.param("list").unwrap_or_default()));
    let costs = Memo::new(move |_| {
        let report = selection.report.get();
        report.map(|report| costs(&report, selection.cells.measure.get())).unwrap_or_default()
    });
    let hosts = Signal::derive(move || costs.with(|costs| host_costs(costs)));
    let devices = Signal::derive(move || {
        selection.devices.with(|devices| costs.with(|costs| device_kind_costs(costs, devices)))
    });
    let pin = move |_| {
        if let Some(rank) = selection.cells.rank.get_untracked() {
            selection.toggle_pin(rank);
        }
    };
    let pin_label = move || match selection.cells.rank.get() {
        Some(rank) if selection.pinned.with(|pinned| pinned.contains(&rank)) => format!("Unpin rank {rank}"),
        Some(rank) => format!("Pin rank {rank}"),
        None => "Select a rank to pin it".into(),
    };
    let title = move || format!("{} by ", shown.get().name());
    // Lateness has no sum over steps. What makes a rank late is its own work.
    let measure = move || match selection.cells.measure.get() {
        Measure::Lateness => Measure::LocalWork.name(),
        measure => measure.name(),
    };
    let steps_shown = move || selection.report.get().and_then(|report| steps(&report)).unwrap_or_default();
    let choice = move |rows: Rows| {
        let key = (rows != Rows::Ranks).then(|| rows.key().to_owned());
        let choose = move |_| selection.cells.address.set([("list", key.clone())]);
        view! {
            <button aria-pressed=move || (shown.get() == rows).to_string() on:click=choose>{rows.name()}</button>
        }
    };
    view! {
        <section class="panel" aria-label="Ranks by cost">
            <div class="panel-head">
                <h2>{title}{measure}<small>" mean of "{steps_shown}", worst first"</small></h2>
                <span class="grow"></span>
                <div class="segments" role="group" aria-label="Rows of the list" data-testid="list-rows">
                    {Rows::ALL.map(choice).collect_view()}
                </div>
                <button data-testid="pin" disabled=move || selection.cells.rank.get().is_none() on:click=pin>{pin_label}</button>
            </div>
            {move || match shown.get() {
                Rows::Ranks => view! { <RankTable selection=selection costs=costs /> }.into_any(),
                Rows::Hosts => view! { <GroupTable selection=selection groups=hosts testid="host-list" heading="Host" unnamed="unnamed" /> }
                    .into_any(),
                Rows::Devices => view! { <GroupTable selection=selection groups=devices testid="device-list" heading="Device" unnamed="no device reported" /> }
                    .into_any(),
            }}
        </section>
    }
}

#[derive(Clone, PartialEq)]
struct RankRow {
    cost: RankCost,
    /// The figure as a share of the largest one.
    share: f64,
    is_pinned: bool,
    is_culprit: bool,
}

#[component]
fn RankTable(selection: RanksSelection, costs: Memo<Vec<RankCost>>) -> impl IntoView {
    let rows = Signal::derive(move || {
        let (costs, pinned, culprit) = (costs.get(), selection.pinned.get(), selection.culprit.get());
        let most = costs.first().map_or(1.0, |cost| cost.nanos.max(1.0));
        let row = |cost: RankCost| RankRow {
            share: cost.nanos / most,
            is_pinned: pinned.contains(&cost.rank),
            is_culprit: culprit == Some(cost.rank),
            cost,
        };
        costs.into_iter().map(row).collect()
    });
    let columns = vec![
        Column::number("Rank", |row: &RankRow| (f64::from(row.cost.rank), row.cost.rank.to_string())),
        Column::text("Host", |row: &RankRow| row.cost.host.clone()),
        Column::bar(|row: &RankRow| (row.share, row.is_culprit)),
        Column::number("Mean", |row: &RankRow| (row.cost.nanos, units::nanos(row.cost.nanos))),
        Column::number("Against the median rank", |row: &RankRow| {
            (row.cost.excess_nanos, units::signed_nanos(row.cost.excess_nanos))
        }),
        Column::text("Pinned", |row: &RankRow| if row.is_pinned { "pinned".into() } else { String::new() }),
    ];
    let choice = Choice::new(
        move |row: &RankRow| selection.cells.rank.get() == Some(row.cost.rank),
        move |row: RankRow| selection.select_rank(row.cost.rank),
    );
    let key = |row: &RankRow| row.cost.rank;
    view! { <Table testid="rank-list" caption="Ranks by cost" columns=columns rows=rows key=key choice=choice /> }
}

/// A host or a kind of device in the list.
#[derive(Clone, PartialEq)]
struct GroupRow {
    cost: GroupCost,
    /// The figure as a share of the largest one.
    share: f64,
    /// Whether the culprit is its worst rank.
    has_culprit: bool,
}

/// The list of groups. `unnamed` stands for ranks that have not named their group.
#[component]
fn GroupTable(
    selection: RanksSelection,
    groups: Signal<Vec<GroupCost>>,
    testid: &'static str,
    heading: &'static str,
    unnamed: &'static str,
) -> impl IntoView {
    let rows = Signal::derive(move || {
        let (groups, culprit) = (groups.get(), selection.culprit.get());
        let most = groups.first().map_or(1.0, |group| group.nanos.max(1.0));
        let row = |cost: GroupCost| GroupRow {
            share: cost.nanos / most,
            has_culprit: culprit == Some(cost.worst),
            cost,
        };
        groups.into_iter().map(row).collect()
    });
    let name = move |row: &GroupRow| {
        if row.cost.name.is_empty() { unnamed.to_owned() } else { row.cost.name.clone() }
    };
    let columns = vec![
        Column::text(heading, name),
        Column::number("Ranks", |row: &GroupRow| {
            (row.cost.ranks as f64, units::count(row.cost.ranks as u64))
        }),
        Column::bar(|row: &GroupRow| (row.share, row.has_culprit)),
        Column::number("Mean", |row: &GroupRow| (row.cost.nanos, units::nanos(row.cost.nanos))),
        Column::number("Against the median rank", |row: &GroupRow| {
            (row.cost.excess_nanos, units::signed_nanos(row.cost.excess_nanos))
        }),
        Column::number("Worst rank", |row: &GroupRow| {
            (f64::from(row.cost.worst), row.cost.worst.to_string())
        }),
    ];
    let choice = Choice::new(
        move |row: &GroupRow| selection.cells.rank.get() == Some(row.cost.worst),
        move |row: GroupRow| selection.select_rank(row.cost.worst),
    );
    let key = |row: &GroupRow| row.cost.name.clone();
    view! { <Table testid=testid caption="Groups of ranks by cost" columns=columns rows=rows key=key choice=choice /> }
}
