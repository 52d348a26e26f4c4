//! Tables of buckets: the selected bucket on every rank of this step, and all buckets over the run.

use leptos::prelude::*;
use viz::order::order;
use wire::live::Waterfall;

use super::buckets::StepSelection;
use crate::cells::{derived, flag, memo, text};
use crate::live::Live;
use crate::table::{Column, Rows, table};

/// One bucket on one rank. Times are nanoseconds since the step began.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OnRank {
    rank: u32,
    ready: f64,
    launch: f64,
    start: f64,
    end: f64,
    lateness: f64,
    wait: f64,
    wait_clock_free: f64,
    /// True for the last rank to start, for which the others waited.
    culprit: bool,
}

fn on_ranks(waterfall: &Waterfall, bucket: u32) -> Vec<OnRank> {
    let at: Vec<usize> = (0..waterfall.bucket.len()).filter(|&at| waterfall.bucket[at] == bucket).collect();
    let starts: Vec<f64> = at.iter().map(|&at| waterfall.bucket_start[at]).collect();
    let order = order(starts.len(), &|a, b| starts[a].total_cmp(&starts[b]));
    let start = |place: Option<&u32>| place.map(|&at| starts[at as usize]);
    let middle = |place: usize| start(order.get(place));
    let (Some(last), Some(low), Some(high)) =
        (start(order.last()), middle(order.len().saturating_sub(1) / 2), middle(order.len() / 2))
    else {
        return Vec::new();
    };
    // Lateness is start - median start, as on the Ranks view. For an even number of ranks, the median is the mean of
    // the middle two.
    let median = f64::midpoint(low, high);
    at.into_iter()
        .map(|at| OnRank {
            rank: waterfall.rank[waterfall.bucket_row[at] as usize],
            ready: waterfall.bucket_ready[at],
            launch: waterfall.bucket_launch[at],
            start: waterfall.bucket_start[at],
            end: waterfall.bucket_end[at],
            lateness: waterfall.bucket_start[at] - median,
            wait: waterfall.bucket_wait[at],
            wait_clock_free: waterfall.bucket_wait_clock_free[at],
            culprit: starts.len() > 1 && waterfall.bucket_start[at] >= last,
        })
        .collect()
}

/// Creates the table of the selected bucket in the shown step, with one row per rank.
#[component]
pub fn SelectedBucket(selection: StepSelection) -> impl IntoView {
    let rows = memo(move || {
        let bucket = selection.bucket.get()?;
        selection.shown.with(|shown| Some(on_ranks(&shown.as_ref()?.waterfall, bucket)))
    });
    let count = derived(move || rows.with(|rows| rows.as_ref().map_or(0, Vec::len)));
    let title = text(move || {
        selection
            .bucket
            .get()
            .map_or_else(|| "Bucket on every rank".into(), |bucket| format!("Bucket {bucket} on every rank"))
    });
    let columns = vec![
        Column::Number("Rank"),
        Column::Number("Ready"),
        Column::Number("Launch"),
        Column::Number("Start"),
        Column::Number("End"),
        Column::Number("Lateness"),
        Column::Number("Wait, aligned"),
        Column::Number("Wait, clock-free"),
        Column::Number("Transfer"),
        Column::Words("Order"),
    ];
    let one = move |at: usize| rows.with(|rows| rows.as_ref().and_then(|rows| rows.get(at).copied()));
    let cell = move |at: usize, column: usize| {
        let Some(row) = one(at) else { return String::new() };
        match column {
            0 => row.rank.to_string(),
            1 => known(row.ready),
            2 => known(row.launch),
            3 => known(row.start),
            4 => known(row.end),
            5 => units::signed_nanos(row.lateness),
            6 => known(row.wait),
            7 => known(row.wait_clock_free),
            8 => known(row.end - row.start - row.wait),
            _ => {
                if row.culprit {
                    "last to start".into()
                } else {
                    String::new()
                }
            }
        }
    };
    let chosen = move |at: usize| one(at).is_some_and(|row| selection.rank.get() == Some(row.rank));
    let choose =
        move |at: usize| selection.select(selection.bucket.get_untracked(), one(at).map(|row| row.rank));
    let rows = Rows::new(count, cell).choosing(chosen, choose);
    let words = text(move || match (selection.bucket.get(), count.get()) {
        (None, _) => {
            "Click a bucket in the waterfall, or select one below. Its marks (○ ready, ┆ launch, │ start and \
                      end) appear on every rank."
                .into()
        }
        (Some(_), 0) => "This bucket is not in the step above.".into(),
        (Some(_), _) => String::new(),
    });
    let nothing = flag(move || count.get() == 0);
    let something = flag(move || !nothing.get());
    view! {
        <section class="panel" aria-label="Selected bucket">
            <div class="panel-head"><h2>{title}</h2></div>
            <p class="quiet" class:hidden=something>{words}</p>
            <div class:hidden=nothing>{table("bucket-detail", title, columns, rows)}</div>
        </section>
    }
}

fn known(nanos: f64) -> String {
    if nanos.is_nan() { "—".into() } else { units::nanos(nanos) }
}

/// Creates the table of all buckets over the observed steps.
#[component]
pub fn BucketTable(selection: StepSelection) -> impl IntoView {
    let live = expect_context::<Live>();
    let count = derived(move || live.run.with(|run| run.as_ref().map_or(0, |run| run.report.buckets.len())));
    let columns = vec![
        Column::Number("Bucket"),
        Column::Number("Payload"),
        Column::Number("Collectives"),
        Column::Number("Wait, median"),
        Column::Number("Wait, p90"),
        Column::Number("Transfer, median"),
        Column::Number("Transfer, p90"),
        Column::Number("Hidden"),
        Column::Number("algbw"),
        Column::Number("busbw"),
    ];
    let one = move |at: usize| live.run.with(|run| run.as_ref()?.report.buckets.get(at).cloned());
    let world = move || live.run.with(|run| run.as_ref().map_or(0, |run| run.report.ranks));
    let cell = move |at: usize, column: usize| {
        let Some(bucket) = one(at) else { return String::new() };
        let bandwidth = |v: Option<f64>| v.map_or_else(|| "—".into(), |v| units::rate(v, "B/s"));
        match column {
            0 if bucket.group.ranks < world() => format!("{} · {}", bucket.bucket, bucket.group.name(0)),
            0 => bucket.bucket.to_string(),
            1 => units::bytes(bucket.bytes),
            2 => units::count(bucket.collectives),
            3 => units::nanos(bucket.wait_nanos.median),
            4 => units::nanos(bucket.wait_nanos.p90),
            5 => units::nanos(bucket.transfer_nanos.median),
            6 => units::nanos(bucket.transfer_nanos.p90),
            7 => bucket.hidden_ratio.map_or_else(|| "—".into(), units::percent),
            8 => bandwidth(bucket.algbw),
            _ => bandwidth(bucket.busbw),
        }
    };
    let number = move |at: usize| one(at).map(|bucket| bucket.bucket.0);
    let chosen = move |at: usize| number(at).is_some() && number(at) == selection.bucket.get();
    let choose = move |at: usize| selection.select(number(at), selection.rank.get_untracked());
    let rows = Rows::new(count, cell).choosing(chosen, choose);
    view! {
        <section class="panel" aria-label="All buckets">
            <div class="panel-head"><h2>"Buckets"<small>" over the observed steps and all ranks"</small></h2></div>
            {table("buckets-table", "Buckets over the observed steps".to_owned().into(), columns, rows)}
        </section>
    }
    .into_any()
}
