//! The Health view, which shows how far the figures can be trusted: which ranks report, what was lost, how well clocks
//! agree, and what recording costs.

use std::sync::Arc;

use leptos::prelude::*;
use model::trust;
use units::signed;
use wire::batch::{DropReason, total};
use wire::views::{Gap, GapKind, Missing, RankClock, Report};

use crate::access::Unauthorized;
use crate::key_figure::KeyFigure;
use crate::live::{Live, RunView};
use crate::overhead::interval;
use crate::table::{Column, Table};

#[component]
pub fn Health() -> impl IntoView {
    let live = expect_context::<Live>();
    let facts = move || {
        live.run.get().map(|run| {
            view! { <Facts run=run now=live.now.get() /> }
        })
    };
    let sentence = move || live.run.with(|run| run.as_ref().map(|run| trust::sentence(&run.report)));
    view! {
        <p class="lead" data-testid="trust">{sentence}</p>
        <Unauthorized />
        {facts}
        <Trust />
        <RankTable />
    }
}

#[component]
fn Facts(run: Arc<RunView>, now: f64) -> impl IntoView {
    let (report, summary) = (&run.report, &run.summary);
    let has_ended = summary.state.has_ended();
    // The browser's clock may be behind the server's.
    let age = units::clock(((now - summary.last_seen_unix_millis as f64) / 1000.0).max(0.0));
    let silent = summary.ranks_expected.saturating_sub(summary.ranks_reporting);
    let no_clocks = || "no clock is aligned yet".to_owned();
    let (bound, drift) = (worst_bound(report), worst_drift(report));
    let whose = |found: Option<(u32, f64)>| found.map(|(rank, _)| format!("rank {rank}")).unwrap_or_default();
    let overhead = report.own_overhead.as_result().map_err(Missing::to_string);
    view! {
        <dl class="figures" data-testid="health">
            <KeyFigure
                testid="reporting"
                name="Ranks reporting"
                value=Ok(format!("{} of {}", units::count(summary.ranks_reporting.into()), units::count(summary.ranks_expected.into())))
                below=if silent == 0 { "all ranks".into() } else { format!("{silent} silent") }
            />
            <KeyFigure
                testid="staleness"
                name="Age of the data"
                value=Ok(age)
                below=if has_ended { "the run has ended" } else { "since the last batch of any rank" }
            />
            <KeyFigure
                testid="clock-bound"
                name="Clock bound, worst"
                value=bound.map(|(_, bound)| units::nanos(bound)).ok_or_else(no_clocks)
                below=whose(bound)
            />
            <KeyFigure
                testid="clock-drift"
                name="Drift, largest"
                value=drift.map(|(_, ppb)| written_drift(ppb)).ok_or_else(no_clocks)
                below=whose(drift)
            />
            <KeyFigure
                testid="health-overhead"
                name="Own overhead"
                value=overhead.clone().map(|o| units::signed_percent(o.ratio))
                below=overhead.map(|o| format!("95 %: {}", interval(o))).unwrap_or_default()
            />
            <KeyFigure
                testid="health-drops"
                name="Records lost"
                value=Ok(units::count(DropReason::ALL.map(|why| lost(report, why)).iter().sum()))
                below=lost_where(report)
            />
        </dl>
    }
}

/// Describes where records were lost. In addition to the agents' losses, a server may have refused batches, or a disk
/// may have damaged them.
fn lost_where(report: &Report) -> String {
    let is_on_server = |gap: &Gap| matches!(gap.kind, GapKind::StoredBatches | GapKind::RefusedBatches);
    let server_lacks = report.gaps.iter().any(is_on_server);
    let lost = match report.drops.len() {
        0 if server_lacks => "none by agents".into(),
        0 => "every record arrived".into(),
        ranks => format!("by agents of {ranks} ranks"),
    };
    if server_lacks {
        format!("{lost}; batches are missing on the server, see Missing figures")
    } else {
        lost
    }
}

fn worst_bound(report: &Report) -> Option<(u32, f64)> {
    let known = report.clocks.iter().filter_map(|clock| Some((clock.rank.0, clock.bound_nanos? as f64)));
    known.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn worst_drift(report: &Report) -> Option<(u32, f64)> {
    let known = report.clocks.iter().filter(|clock| clock.bound_nanos.is_some());
    known.map(|clock| (clock.rank.0, clock.drift_ppb)).max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
}

/// Formats a drift given in parts per billion. The clock of a usual machine is off by some parts per million.
fn written_drift(ppb: f64) -> String {
    if ppb.abs() < 1000.0 {
        format!("{} ppb", signed(ppb, 0))
    } else {
        format!("{} ppm", signed(ppb / 1000.0, 1))
    }
}

fn lost(report: &Report, why: DropReason) -> u64 {
    let drops = report.drops.iter().flat_map(|rank| &rank.drops);
    total(drops.filter(|drop| drop.reason == why).map(|drop| drop.count))
}

/// What limits the accuracy of the figures: lost records and missing figures, each with its reason.
#[component]
fn Trust() -> impl IntoView {
    let live = expect_context::<Live>();
    let losses = move || {
        let run = live.run.get();
        DropReason::ALL
            .map(|why| {
                let count = run.as_ref().map_or(0, |run| lost(&run.report, why));
                view! {
                    <tr>
                        <th scope="row">
                            {why.name().replace('_', " ")}
                            <small class="explained">{why.meaning()}</small>
                        </th>
                        <td class="number">{units::count(count)}</td>
                    </tr>
                }
            })
            .collect_view()
    };
    let missing = move || {
        let reasons = live.run.get().map(|run| run.report.reasons()).unwrap_or_default();
        let none = reasons.is_empty().then(|| view! { <p class="quiet">"No figure is missing."</p> });
        let lines = reasons.into_iter().map(|(name, why)| view! { <dt>{name}</dt><dd>{why}</dd> });
        view! {
            {none}
            <dl class="reasons">{lines.collect_view()}</dl>
        }
    };
    view! {
        <div class="halves">
            <section class="panel">
                <div class="panel-head"><h2>"Records lost"<small>" since each process began"</small></h2></div>
                <table class="roomy">
                    <thead><tr><th scope="col">"Reason"</th><th scope="col" class="number">"Records"</th></tr></thead>
                    <tbody>{losses}</tbody>
                </table>
            </section>
            <section class="panel" data-testid="missing">
                <div class="panel-head"><h2>"Missing figures"<small>" and the reasons"</small></h2></div>
                {missing}
            </section>
        </div>
    }
}

/// The clock of one rank, and the records that it lost, in the order of [`DropReason::ALL`].
#[derive(Clone, PartialEq)]
struct Row {
    clock: RankClock,
    lost: [u64; 4],
}

fn rows(report: &Report) -> Vec<Row> {
    let lost = |clock: &RankClock| {
        let drops = report.drops.iter().filter(|rank| rank.rank == clock.rank).flat_map(|rank| &rank.drops);
        DropReason::ALL
            .map(|why| total(drops.clone().filter(|drop| drop.reason == why).map(|drop| drop.count)))
    };
    report.clocks.iter().map(|clock| Row { clock: *clock, lost: lost(clock) }).collect()
}

#[component]
fn RankTable() -> impl IntoView {
    let live = expect_context::<Live>();
    let rows = Signal::derive(move || live.run.get().map(|run| rows(&run.report)).unwrap_or_default());
    let mut columns = vec![
        Column::number("Rank", |row: &Row| (f64::from(row.clock.rank.0), row.clock.rank.to_string())),
        Column::number("Clock bound", |row: &Row| match row.clock.bound_nanos {
            Some(bound) => (bound as f64, units::nanos(bound as f64)),
            None => (f64::NAN, "no probe yet".into()),
        }),
        Column::number("Drift", |row: &Row| match row.clock.bound_nanos {
            Some(_) => (row.clock.drift_ppb, written_drift(row.clock.drift_ppb)),
            None => (f64::NAN, "—".into()),
        }),
    ];
    let reasons = ["Lost: ring full", "Lost: spool full", "Lost: refused", "Lost: shutdown"];
    columns.extend(reasons.into_iter().enumerate().map(|(at, name)| {
        Column::number(name, move |row: &Row| (row.lost[at] as f64, units::count(row.lost[at])))
    }));
    view! {
        <section class="panel" aria-label="Clocks and losses by rank">
            <div class="panel-head">
                <h2>
                    "By rank"
                    <small>" error bound of aligned times, drift against the server's clock, records lost"</small>
                </h2>
            </div>
            <Table testid="health-table" caption="Clocks and losses by rank" columns=columns rows=rows key=|row: &Row| row.clock.rank.0 worst_first=1 />
        </section>
    }
}
