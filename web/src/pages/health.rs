//! How far the figures can be trusted: who reports, what was lost, how well clocks agree, what recording costs.

use leptos::prelude::*;
use viz::units;
use wire::batch::DropReason;
use wire::views::{Report, RunState};

use super::figures::{interval, signed_percent};
use crate::cells::{derived, flag, part, text};
use crate::live::{Live, RunView};
use crate::table::{Column, Table};
use crate::widgets::{Figure, Views as _, reason};

/// The view.
#[component]
pub fn Health() -> impl IntoView {
    view! {
        <Hang />
        <Facts />
        <div class="halves">
            <Lost />
            <Missing />
        </div>
        <RankTable />
    }
    .into_any()
}

/// Why the run does not move, when it does not.
#[component]
fn Hang() -> impl IntoView {
    let live = expect_context::<Live>();
    let hang = derived(move || live.run.get().and_then(|shown| shown.report.hang.clone()));
    let none = flag(move || hang.get().is_none());
    let sentence = text(move || hang.get().map(|hang| hang.sentence).unwrap_or_default());
    let below = text(move || {
        let Some(hang) = hang.get() else { return String::new() };
        let ranks: Vec<String> = hang.ranks.iter().map(ToString::to_string).collect();
        let since = units::clock(hang.since_seconds);
        format!("No step for {since}. Ranks whose next collective has not started: {}.", ranks.join(", "))
    });
    view! {
        <section class="verdict" data-kind="hung" class:hidden=none aria-label="Hang" data-testid="hang">
            <p class="sentence">{sentence}</p>
            <p class="quiet">{below}</p>
        </section>
    }
    .into_any()
}

type Read = fn(&RunView) -> Result<String, String>;

#[component]
fn Facts() -> impl IntoView {
    let live = expect_context::<Live>();
    let value = move |read: Read| {
        derived(move || live.run.get().map_or_else(|| Err(String::new()), |shown| read(&shown)))
    };
    let below = move |read: fn(&RunView) -> String| {
        text(move || live.run.get().map(|shown| read(&shown)).unwrap_or_default())
    };
    let age = derived(move || {
        let shown = live.run.get().ok_or_else(String::new)?;
        let seconds = (live.now.get() - shown.summary.last_seen_unix_millis as f64) / 1000.0;
        let over = matches!(shown.summary.state, RunState::Completed | RunState::Failed);
        // Two clocks: the browser's may run behind the server's.
        let age = units::clock(seconds.max(0.0));
        Ok(if over { format!("{age} ago") } else { age })
    });
    let ended = text(move || {
        let state = live.run.get().map(|shown| shown.summary.state);
        match state {
            Some(RunState::Completed | RunState::Failed) => "the run has ended".into(),
            Some(_) => "since the last batch of any rank".into(),
            None => String::new(),
        }
    });
    view! {
        <dl class="figures" data-testid="health">
            <Figure testid="reporting" name="Ranks reporting" means="ranks heard from in the last ten seconds, of those the run has"
                value=value(|run| Ok(format!("{} of {}", run.summary.ranks_reporting, run.summary.ranks_expected)))
                below=below(|run| match run.summary.ranks_expected - run.summary.ranks_reporting.min(run.summary.ranks_expected) {
                    0 => "all of them".into(),
                    missing => format!("{} silent", units::count(missing.into())),
                }) />
            <Figure testid="staleness" name="Age of the data" means="time since the last batch came" value=age below=ended />
            <Figure testid="clock-bound" name="Clock bound, worst" means="error bound of aligned times, the largest of all ranks"
                value=value(|run| worst_bound(&run.report).map(|(_, bound)| units::nanos(bound)).ok_or_else(|| reason(&run.report, "clocks")))
                below=below(|run| worst_bound(&run.report).map(|(rank, _)| format!("rank {rank}")).unwrap_or_default()) />
            <Figure testid="clock-drift" name="Drift, largest" means="drift of a rank's clock against the server's"
                value=value(|run| worst_drift(&run.report).map(|(_, ppb)| drift(ppb)).ok_or_else(|| reason(&run.report, "clocks")))
                below=below(|run| worst_drift(&run.report).map(|(rank, _)| format!("rank {rank}")).unwrap_or_default()) />
            <Figure testid="health-overhead" name="Own overhead" means="median of observed step / neighbouring shadow step - 1, with its 95 % interval"
                value=value(|run| run.report.own_overhead.map(|o| signed_percent(o.ratio)).ok_or_else(|| reason(&run.report, "own_overhead")))
                below=below(|run| run.report.own_overhead.map(|o| format!("95 %: {}", interval(&o))).unwrap_or_default()) />
            <Figure testid="health-drops" name="Records lost" means="records that agents could not keep or deliver"
                value=value(|run| Ok(units::count(DropReason::ALL.map(|why| lost(&run.report, why)).iter().sum())))
                below=below(|run| match run.report.drops.len() {
                    0 => "every record arrived".into(),
                    ranks => format!("on {} ranks", units::count(ranks as u64)),
                }) />
        </dl>
    }
    .into_any()
}

fn worst_bound(report: &Report) -> Option<(u32, f64)> {
    let known = report.clocks.iter().filter_map(|clock| Some((clock.rank.0, clock.bound_ns? as f64)));
    known.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn worst_drift(report: &Report) -> Option<(u32, f64)> {
    let known = report.clocks.iter().filter(|clock| clock.bound_ns.is_some());
    known.map(|clock| (clock.rank.0, clock.drift_ppb)).max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
}

/// Parts per billion; a clock of a usual machine is off by some parts per million.
fn drift(ppb: f64) -> String {
    let sign = if ppb > 0.0 { "+" } else { "" };
    if ppb.abs() < 1000.0 { format!("{sign}{ppb:.0} ppb") } else { format!("{sign}{:.1} ppm", ppb / 1000.0) }
}

fn lost(report: &Report, why: DropReason) -> u64 {
    let drops = report.drops.iter().flat_map(|rank| &rank.drops);
    drops.filter(|drop| drop.reason == why).map(|drop| drop.count).sum()
}

fn meaning(why: DropReason) -> &'static str {
    match why {
        DropReason::RingFull => {
            "the thread's ring was full: the agent's thread got no processor for too long"
        }
        DropReason::SpoolFull => "the server was away for so long that the rank's spool filled up",
        DropReason::Refused => "the server refused the batch for good: see its log",
        DropReason::Shutdown => "the process ended before the server had acknowledged",
    }
}

/// Records lost by reason. A gap that looks like quiet would be a lie.
#[component]
fn Lost() -> impl IntoView {
    let live = expect_context::<Live>();
    let rows = DropReason::ALL
        .map(|why| {
            let count = text(move || live.run.get().map_or_else(String::new, |shown| units::count(lost(&shown.report, why))));
            view! {
                <tr>
                    <th scope="row">{why.name().replace('_', " ")}<small class="explained">{meaning(why)}</small></th>
                    <td class="number">{count}</td>
                </tr>
            }
        })
        .views();
    view! {
        <section class="panel" aria-label="Records lost">
            <div class="panel-head"><h2>"Records lost"<small>" since each process began"</small></h2></div>
            <table class="roomy">
                <thead><tr><th scope="col">"Reason"</th><th scope="col" class="number">"Records"</th></tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </section>
    }
    .into_any()
}

/// Figures that are not there, each with its reason.
#[component]
fn Missing() -> impl IntoView {
    let live = expect_context::<Live>();
    let body = part(move || {
        let Some(shown) = live.run.get() else { return ().into_any() };
        if shown.report.missing.is_empty() {
            return view! { <p class="quiet">"Every figure is there."</p> }.into_any();
        }
        let rows = shown
            .report
            .missing
            .iter()
            .map(|(name, why)| view! { <dt>{name.replace('_', " ")}</dt><dd>{why.clone()}</dd> })
            .views();
        view! { <dl class="reasons">{rows}</dl> }.into_any()
    });
    view! {
        <section class="panel" aria-label="Missing figures" data-testid="missing">
            <div class="panel-head"><h2>"Missing figures"<small>" and why"</small></h2></div>
            {body}
        </section>
    }
    .into_any()
}

#[component]
fn RankTable() -> impl IntoView {
    let live = expect_context::<Live>();
    let count = derived(move || live.run.get().map_or(0, |shown| shown.report.clocks.len()));
    let columns = [Column::Number("Rank"), Column::Number("Clock bound"), Column::Number("Drift")]
        .into_iter()
        .chain(["Lost: ring full", "Lost: spool full", "Lost: refused", "Lost: shutdown"].map(Column::Number))
        .collect();
    let cell = move |(at, column): (usize, usize)| {
        let Some(shown) = live.run.get() else { return String::new() };
        let Some(clock) = shown.report.clocks.get(at) else { return String::new() };
        let known = clock.bound_ns.is_some();
        match column {
            0 => clock.rank.to_string(),
            1 => clock.bound_ns.map_or_else(|| "no probe yet".into(), |bound| units::nanos(bound as f64)),
            2 if known => drift(clock.drift_ppb),
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
            <Table testid="health-table" caption="Clocks and losses by rank" columns=columns count=count cell=cell />
        </section>
    }
    .into_any()
}
