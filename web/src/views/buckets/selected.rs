//! The table of the selected bucket: its times on every rank of this step.

use analysis::stats;
use leptos::prelude::*;
use wire::live::Waterfall;

use super::StepSelection;
use crate::table::{Choice, Column, Table};

/// One bucket on one rank. Times are nanoseconds since the step began.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BucketOfRank {
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

fn ranks_of_bucket(waterfall: &Waterfall, bucket: u32) -> Vec<BucketOfRank> {
    let at: Vec<usize> = (0..waterfall.bucket.len()).filter(|&at| waterfall.bucket[at] == bucket).collect();
    let starts: Vec<f64> = at.iter().map(|&at| waterfall.bucket_start[at]).collect();
    // Lateness is start - median start, as on the Ranks view.
    let (last, median) = (starts.iter().copied().reduce(f64::max), stats::median(starts.iter().copied()));
    let Some((last, median)) = last.zip(median) else { return Vec::new() };
    at.into_iter()
        .map(|at| BucketOfRank {
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

/// The table of the selected bucket in the shown step, with one row per rank.
#[component]
pub fn SelectedBucket(selection: StepSelection) -> impl IntoView {
    let rows = Memo::new(move |_| {
        let found = selection.bucket.get().zip(selection.shown.get());
        found.map(|(bucket, all)| ranks_of_bucket(&all, bucket)).unwrap_or_default()
    });
    let title = Signal::derive(move || {
        selection
            .bucket
            .get()
            .map_or_else(|| "Bucket on every rank".into(), |bucket| format!("Bucket {bucket} on every rank"))
    });
    let time = |name: &'static str, read: fn(&BucketOfRank) -> f64| {
        Column::number(name, move |row: &BucketOfRank| (read(row), known(read(row))))
    };
    let columns = vec![
        Column::number("Rank", |row: &BucketOfRank| (f64::from(row.rank), row.rank.to_string())),
        time("Ready", |row| row.ready),
        time("Launch", |row| row.launch),
        time("Start", |row| row.start),
        time("End", |row| row.end),
        Column::number("Lateness", |row: &BucketOfRank| (row.lateness, units::signed_nanos(row.lateness))),
        time("Wait, aligned", |row| row.wait),
        time("Wait, clock-free", |row| row.wait_clock_free),
        time("Transfer", |row| row.end - row.start - row.wait),
        Column::text(
            "Order",
            |row: &BucketOfRank| if row.culprit { "last to start".into() } else { String::new() },
        ),
    ];
    let choice = Choice::new(
        move |row: &BucketOfRank| selection.rank.get() == Some(row.rank),
        move |row: BucketOfRank| selection.select(selection.bucket.get_untracked(), Some(row.rank)),
    );
    let nothing = Memo::new(move |_| rows.with(Vec::is_empty));
    let words = move || match selection.bucket.get() {
        None => {
            "Click a bucket in the waterfall, or select one below. Its marks (○ ready, ┆ launch, │ start and end) \
             appear on every rank."
        }
        Some(_) => "This bucket is not in the step above.",
    };
    view! {
        <section class="panel" aria-label="Selected bucket">
            <div class="panel-head"><h2>{title}</h2></div>
            <Show when=move || nothing.get()>
                <p class="quiet">{words}</p>
            </Show>
            <div class:hidden=nothing>
                <Table testid="bucket-detail" caption=title columns=columns rows=rows key=|row: &BucketOfRank| row.rank choice=choice />
            </div>
        </section>
    }
}

fn known(nanos: f64) -> String {
    if nanos.is_nan() { "—".into() } else { units::nanos(nanos) }
}
