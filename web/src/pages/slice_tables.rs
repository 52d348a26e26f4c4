//! Buckets in numbers: the selected one on every rank of this step, and all of them over the run.

use leptos::prelude::*;
use viz::units;
use wire::live::Waterfall;
use wire::views::BucketStats;

use super::buckets::StepLook;
use crate::live::Live;
use crate::table::Rows;

/// One bucket on one rank, nanoseconds since the step began.
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
    /// The last to start: the others waited for it.
    culprit: bool,
}

fn on_ranks(waterfall: &Waterfall, bucket: u32) -> Vec<OnRank> {
    let at: Vec<usize> = (0..waterfall.bucket.len()).filter(|&at| waterfall.bucket[at] == bucket).collect();
    let mut starts: Vec<f64> = at.iter().map(|&at| waterfall.bucket_start[at]).collect();
    starts.sort_unstable_by(f64::total_cmp);
    let (Some(&last), Some(&median)) = (starts.last(), starts.get(starts.len() / 2)) else {
        return Vec::new();
    };
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

/// The selected bucket of the step that is shown, a line a rank.
#[component]
pub fn SelectedBucket(look: StepLook) -> impl IntoView {
    let rows = Memo::new(move |_| {
        let bucket = look.bucket.get()?;
        look.shown.with(|shown| Some(on_ranks(&shown.as_ref()?.waterfall, bucket)))
    });
    let count = Signal::derive(move || rows.with(|rows| rows.as_ref().map_or(0, Vec::len)));
    let title = Signal::derive(move || {
        look.bucket
            .get()
            .map_or_else(|| "Bucket on every rank".into(), |bucket| format!("Bucket {bucket} on every rank"))
    });
    let columns = vec![
        ("Rank", true),
        ("Ready", true),
        ("Launch", true),
        ("Start", true),
        ("End", true),
        ("Lateness", true),
        ("Wait, aligned", true),
        ("Wait, clock-free", true),
        ("Transfer", true),
        ("", false),
    ];
    let body = move || {
        if look.bucket.get().is_none() {
            return view! {
                <p class="quiet">
                    "Click a bucket in the waterfall, or choose one below: its marks ○ ready, ┆ launch, │ start and end appear on every rank."
                </p>
            }
            .into_any();
        }
        view! {
            <Rows testid="bucket-detail" caption=title columns=columns.clone() count=count
                row=move |at| {
                    let one = move || rows.with(|rows| rows.as_ref().and_then(|rows| rows.get(at).copied()));
                    let cell = move |read: fn(&OnRank) -> String| {
                        view! { <td class="number">{move || one().as_ref().map(read)}</td> }
                    };
                    view! {
                        <tr class:chosen=move || one().is_some_and(|row| look.rank.get() == Some(row.rank))>
                            <th scope="row" class="number">{move || one().map(|row| row.rank)}</th>
                            {cell(|row| units::nanos(row.ready))}
                            {cell(|row| units::nanos(row.launch))}
                            {cell(|row| units::nanos(row.start))}
                            {cell(|row| units::nanos(row.end))}
                            {cell(|row| units::signed_nanos(row.lateness))}
                            {cell(|row| known(row.wait))}
                            {cell(|row| known(row.wait_clock_free))}
                            {cell(|row| known(row.end - row.start - row.wait))}
                            <td>{move || one().is_some_and(|row| row.culprit).then_some("last to start")}</td>
                        </tr>
                    }
                } />
        }
        .into_any()
    };
    view! {
        <section class="panel" aria-label="Selected bucket">
            <div class="panel-head"><h2>{move || title.get()}</h2></div>
            {body}
        </section>
    }
}

fn known(nanos: f64) -> String {
    if nanos.is_nan() { "—".into() } else { units::nanos(nanos) }
}

/// All buckets over the observed steps.
#[component]
pub fn BucketTable(look: StepLook) -> impl IntoView {
    let live = expect_context::<Live>();
    let buckets = Memo::new(move |_| {
        live.run.with(|run| run.as_ref().map(|run| run.report.buckets.clone()).unwrap_or_default())
    });
    let count = Signal::derive(move || buckets.with(Vec::len));
    let columns = vec![
        ("Bucket", true),
        ("Payload", true),
        ("Collectives", true),
        ("Wait, median", true),
        ("Wait, p90", true),
        ("Transfer, median", true),
        ("Transfer, p90", true),
        ("Hidden", true),
        ("algbw", true),
        ("busbw", true),
    ];
    view! {
        <section class="panel" aria-label="All buckets">
            <div class="panel-head"><h2>"Buckets"<small>" over the observed steps and all ranks"</small></h2></div>
            <Rows testid="buckets-table" caption="Buckets over the observed steps" columns=columns count=count
                row=move |at| {
                    let one = move || buckets.with(|buckets| buckets.get(at).copied());
                    let cell = move |read: fn(&BucketStats) -> String| {
                        view! { <td class="number">{move || one().as_ref().map(read)}</td> }
                    };
                    let number = move || one().map(|bucket| bucket.bucket.0);
                    let select = move |_| look.select(number(), look.rank.get_untracked());
                    view! {
                        <tr class:chosen=move || number().is_some() && number() == look.bucket.get() on:click=select>
                            <th scope="row" class="number">
                                <button class="link" on:click=select>{number}</button>
                            </th>
                            {cell(|b| units::bytes(b.bytes))}
                            {cell(|b| units::count(b.collectives))}
                            {cell(|b| units::nanos(b.wait_ns.median))}
                            {cell(|b| units::nanos(b.wait_ns.p90))}
                            {cell(|b| units::nanos(b.transfer_ns.median))}
                            {cell(|b| units::nanos(b.transfer_ns.p90))}
                            {cell(|b| b.hidden_ratio.map_or_else(|| "—".into(), units::percent))}
                            {cell(|b| b.algbw.map_or_else(|| "—".into(), |v| units::rate(v, "B/s")))}
                            {cell(|b| b.busbw.map_or_else(|| "—".into(), |v| units::rate(v, "B/s")))}
                        </tr>
                    }
                } />
        </section>
    }
}
