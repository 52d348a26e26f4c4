//! The Health view, which shows how far the figures can be trusted: which ranks report, what was lost, how well clocks
//! agree, and what recording costs.

use leptos::prelude::*;
use units::fixed;
use wire::batch::DropReason;
use wire::views::{Gap, GapKind, Missing, Report, RunState};

use super::figures::{interval, signed_percent};
use super::served::served;
use crate::cells::{derived, text};
use crate::html::{Html, shown};
use crate::live::{Live, RunView};
use crate::table::{Column, Rows, table};
use crate::widgets::figure;

/// Creates the view.
pub fn health() -> AnyView {
    let live = expect_context::<Live>();
    let content = text(move || {
        let Some(run) = live.run.get() else { return String::new() };
        facts(hang(Html::default(), &run.report), &run, live.now.get()).done()
    });
    view! {
        {shown("page", content)}
        {served("trust")}
        {rank_table(live)}
    }
    .into_any()
}

/// Appends the hang, if there is one.
fn hang(html: Html, report: &Report) -> Html {
    let Some(hang) = &report.hang else { return html };
    let ranks: Vec<String> = hang.ranks.iter().map(ToString::to_string).collect();
    let since = units::clock(hang.since_seconds);
    let below =
        format!("No step for {since}. Ranks whose next collective has not started: {}.", ranks.join(", "));
    html.raw("<section class=verdict data-kind=hung aria-label=Hang data-testid=hang>")
        .el("p class=sentence", &hang.sentence)
        .el("p class=quiet", &below)
        .raw("</section>")
}

fn facts(html: Html, run: &RunView, now: f64) -> Html {
    let (report, summary) = (&run.report, &run.summary);
    let over = matches!(summary.state, RunState::Completed | RunState::Failed);
    // The browser's clock may be behind the server's.
    let age = units::clock(((now - summary.last_seen_unix_millis as f64) / 1000.0).max(0.0));
    let silent = summary.ranks_expected.saturating_sub(summary.ranks_reporting);
    let html = figure(
        html.raw("<dl class=figures data-testid=health>"),
        ("reporting", "Ranks reporting", "ranks that sent data in the last ten seconds, of all ranks"),
        Ok(format!("{} of {}", summary.ranks_reporting, summary.ranks_expected)),
        &if silent == 0 { "all ranks".into() } else { format!("{silent} silent") },
    );
    let html = figure(
        html,
        ("staleness", "Age of the data", "time since the last batch arrived"),
        Ok(if over { format!("{age} ago") } else { age }),
        if over { "the run has ended" } else { "since the last batch of any rank" },
    );
    let no_clocks = || "no clock is aligned yet".to_owned();
    let (bound, drift) = (worst_bound(report), worst_drift(report));
    let of_rank =
        |found: Option<(u32, f64)>| found.map(|(rank, _)| format!("rank {rank}")).unwrap_or_default();
    let html = figure(
        html,
        ("clock-bound", "Clock bound, worst", "error bound of aligned times, the largest of all ranks"),
        bound.map(|(_, bound)| units::nanos(bound)).ok_or_else(no_clocks),
        &of_rank(bound),
    );
    let html = figure(
        html,
        ("clock-drift", "Drift, largest", "drift of a rank's clock against the server's"),
        drift.map(|(_, ppb)| written_drift(ppb)).ok_or_else(no_clocks),
        &of_rank(drift),
    );
    let overhead = report.own_overhead.as_result().map_err(Missing::to_string);
    let html = figure(
        html,
        (
            "health-overhead",
            "Own overhead",
            "median of (observed step / neighboring shadow step) - 1, with its 95 % interval",
        ),
        overhead.clone().map(|o| signed_percent(o.ratio)),
        &overhead.map(|o| format!("95 %: {}", interval(o))).unwrap_or_default(),
    );
    figure(
        html,
        ("health-drops", "Records lost", "records that agents could not store or deliver"),
        Ok(units::count(DropReason::ALL.map(|why| lost(report, why)).iter().sum())),
        &lost_where(report),
    )
    .raw("</dl>")
}

/// Describes where records were lost. In addition to the agents' losses, a server may have refused batches, or a disk
/// may have damaged them.
fn lost_where(report: &Report) -> String {
    let is_of_server = |gap: &Gap| matches!(gap.kind, GapKind::StoredBatches | GapKind::RefusedBatches);
    let server_lacks = report.gaps.iter().any(is_of_server);
    let of_agents = match report.drops.len() {
        0 if server_lacks => "none by agents".into(),
        0 => "every record arrived".into(),
        ranks => format!("by agents of {ranks} ranks"),
    };
    if server_lacks {
        format!("{of_agents}; batches are missing on the server, see Missing figures")
    } else {
        of_agents
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
    let sign = if ppb > 0.0 { "+" } else { "" };
    if ppb.abs() < 1000.0 {
        format!("{sign}{} ppb", fixed(ppb, 0))
    } else {
        format!("{sign}{} ppm", fixed(ppb / 1000.0, 1))
    }
}

fn lost(report: &Report, why: DropReason) -> u64 {
    let drops = report.drops.iter().flat_map(|rank| &rank.drops);
    drops.filter(|drop| drop.reason == why).map(|drop| drop.count).sum()
}

fn rank_table(live: Live) -> AnyView {
    let count = derived(move || live.run.get().map_or(0, |shown| shown.report.clocks.len()));
    let columns = [Column::Number("Rank"), Column::Number("Clock bound"), Column::Number("Drift")]
        .into_iter()
        .chain(["Lost: ring full", "Lost: spool full", "Lost: refused", "Lost: shutdown"].map(Column::Number))
        .collect();
    let cell = move |at: usize, column: usize| {
        let Some(shown) = live.run.get() else { return String::new() };
        let Some(clock) = shown.report.clocks.get(at) else { return String::new() };
        let known = clock.bound_nanos.is_some();
        match column {
            0 => clock.rank.to_string(),
            1 => clock.bound_nanos.map_or_else(|| "no probe yet".into(), |bound| units::nanos(bound as f64)),
            2 if known => written_drift(clock.drift_ppb),
            2 => "—".into(),
            _ => {
                let why = DropReason::ALL[column - 3];
                let drops = shown.report.drops.iter().filter(|rank| rank.rank == clock.rank);
                let drops = drops.flat_map(|rank| &rank.drops).filter(|drop| drop.reason == why);
                units::count(drops.map(|drop| drop.count).sum())
            }
        }
    };
    view! {
        <section class="panel" aria-label="Clocks and losses by rank">
            <div class="panel-head"><h2>"By rank"<small>" error bound of aligned times, drift against the server's clock, records lost"</small></h2></div>
            {table("health-table", "Clocks and losses by rank".to_owned().into(), columns, Rows::new(count, cell))}
        </section>
    }
    .into_any()
}
