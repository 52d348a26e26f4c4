//! The table of all buckets over the observed steps, with the distribution of each one's latencies.

use leptos::prelude::*;
use model::buckets::histogram::{Bars, bars, bins};
use viz::palette;
use wire::live::Part;
use wire::views::{BucketParameters, BucketStats};

use super::StepSelection;
use crate::live::Live;
use crate::table::{Choice, Column, Table};

#[derive(Clone, PartialEq)]
struct Row {
    stats: BucketStats,
    /// The number, with the group if the bucket is not among all ranks.
    name: String,
    bars: Bars,
}

#[component]
pub fn BucketTable(selection: StepSelection) -> impl IntoView {
    let live = expect_context::<Live>();
    let rows = Signal::derive(move || {
        let Some(run) = live.run.get() else { return Vec::new() };
        let all = &run.report.buckets;
        let bins = bins(all);
        all.iter()
            .map(|stats| Row {
                name: name(stats, run.report.ranks),
                bars: bars(&stats.latency, &bins),
                stats: stats.clone(),
            })
            .collect()
    });
    let choice = Choice::new(
        move |row: &Row| selection.bucket.get() == Some(row.stats.bucket.0),
        move |row: Row| selection.select(Some(row.stats.bucket.0), selection.rank.get_untracked()),
    );
    view! {
        <section class="panel" aria-label="All buckets">
            <div class="panel-head">
                <h2>"Buckets"<small>" over the observed steps and all ranks"</small></h2>
            </div>
            <Table
                testid="buckets-table"
                caption="Buckets over the observed steps"
                columns=columns()
                rows=rows
                key=|row: &Row| row.name.clone()
                choice=choice
            />
        </section>
    }
}

fn name(stats: &BucketStats, world: u32) -> String {
    let number = stats.bucket.0;
    if stats.group.ranks < world {
        format!("{number} · {}", stats.group.name(0))
    } else {
        number.to_string()
    }
}

fn columns() -> Vec<Column<Row>> {
    let time = |name: &'static str, read: fn(&BucketStats) -> f64| {
        Column::number(name, move |row: &Row| (read(&row.stats), units::nanos(read(&row.stats))))
    };
    let bandwidth = |name: &'static str, read: fn(&BucketStats) -> Option<f64>| {
        Column::number(name, move |row: &Row| match read(&row.stats) {
            Some(rate) => (rate, units::rate(rate, "B/s")),
            None => (f64::NAN, "—".into()),
        })
    };
    vec![
        Column::number("Bucket", |row: &Row| (f64::from(row.stats.bucket.0), row.name.clone())),
        Column::number("Payload", |row: &Row| (row.stats.bytes as f64, units::payload(row.stats.bytes))),
        Column::number("Collectives", |row: &Row| {
            (row.stats.collectives as f64, units::count(row.stats.collectives))
        }),
        Column::picture("Latencies", |row: &Row| view! { <Distribution bars=row.bars.clone() /> }.into_any()),
        time("Wait, median", |stats| stats.wait_nanos.median),
        time("Wait, p90", |stats| stats.wait_nanos.p90),
        time("Transfer, median", |stats| stats.transfer_nanos.median),
        time("Transfer, p90", |stats| stats.transfer_nanos.p90),
        Column::number("Hidden", |row: &Row| match row.stats.hidden_ratio {
            Some(ratio) => (ratio, units::percent(ratio)),
            None => (f64::NAN, "—".into()),
        }),
        bandwidth("algbw", |stats| stats.algbw),
        bandwidth("busbw", |stats| stats.busbw),
        Column::text("Parameters", |row: &Row| {
            row.stats.parameters.as_ref().map_or_else(|| "—".into(), BucketParameters::label)
        }),
    ]
}

/// The distribution in miniature: waits above the line, transfers below it. All rows share one scale of latency.
#[component]
fn Distribution(bars: Bars) -> impl IntoView {
    let colors = [palette::part(Part::ExposedWait), palette::part(Part::ExposedTransfer)];
    let width = 100.0 / bars.waits.len().max(1) as f64;
    let half = move |shares: &[f64], is_above: bool| {
        let color = palette::css(colors[usize::from(!is_above)]);
        let bar = |(at, share): (usize, &f64)| {
            let height = share * 50.0;
            let y = if is_above { 50.0 - height } else { 50.0 };
            view! {
                <rect
                    x=format!("{:.2}%", at as f64 * width)
                    y=format!("{y:.1}%")
                    width=format!("{:.2}%", width * 0.9)
                    height=format!("{height:.1}%")
                    fill=color.clone()
                ></rect>
            }
        };
        shares.iter().enumerate().filter(|(_, share)| **share > 0.0).map(bar).collect_view()
    };
    let (waits, transfers) = (half(&bars.waits, true), half(&bars.transfers, false));
    view! { <svg class="distribution" aria-hidden="true">{waits}{transfers}</svg> }
}
