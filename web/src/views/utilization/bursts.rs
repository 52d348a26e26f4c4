//! Bursts: every kernel and copy of a device, for a short time.

use leptos::prelude::*;
use leptos::task::spawn_local;
use model::utilization::named;
use wire::burst::{Activity, BurstOutcome, KernelTime};
use wire::event::SpanKind;
use wire::request::RecordingRequest;
use wire::views::RankBurst;

use crate::api;
use crate::live::Live;
use crate::route::RunId;
use crate::socket::Link;
use crate::table::{Column, Table};

/// A request for bursts.
#[derive(Clone, Copy)]
struct Asked {
    number: u64,
    /// When the server stops asking, in milliseconds since the Unix epoch on the browser's clock.
    until_millis: f64,
}

/// The newest burst of each rank, and the button that asks for more.
#[component]
pub fn Bursts(bursts: Signal<Vec<RankBurst>>) -> impl IntoView {
    let (run, live) = (expect_context::<RunId>(), expect_context::<Live>());
    let asked = RwSignal::new(None::<Result<Asked, String>>);
    let ask = move |_| {
        spawn_local(async move {
            let answer = api::ask_for_bursts(&run.get_untracked()).await;
            let answer_end = live.now.get_untracked() + RecordingRequest::PATIENCE_MILLIS as f64;
            asked.set(Some(answer.map(|request| Asked {
                number: request.number,
                until_millis: answer_end + f64::from(request.millis),
            })));
        });
    };
    let is_unreachable = move || matches!(live.link.get(), Link::Lost(_) | Link::Connecting);
    let has_any = Memo::new(move |_| bursts.with(|bursts| !bursts.is_empty()));
    view! {
        <section class="panel" aria-label="Bursts" data-testid="bursts">
            <div class="panel-head">
                <h2>"Bursts"<small>" every kernel and copy, for a short time (CUPTI)"</small></h2>
                <span class="grow"></span>
                <button disabled=is_unreachable on:click=ask>"Record a second"</button>
            </div>
            <Status asked=asked bursts=bursts />
            <Show when=move || has_any.get()>
                <Outcomes bursts=bursts />
            </Show>
        </section>
    }
}

/// What has become of the request.
#[component]
fn Status(asked: RwSignal<Option<Result<Asked, String>>>, bursts: Signal<Vec<RankBurst>>) -> impl IntoView {
    let live = expect_context::<Live>();
    let words = move || match asked.get() {
        Some(Err(error)) => error,
        Some(Ok(Asked { number, until_millis })) => {
            let ranks = live.run.with(|run| run.as_ref().map_or(0, |run| run.report.ranks));
            let silent = bursts.with(|bursts| silent(bursts, number, ranks));
            let is_over = live.now.get() > until_millis;
            let what = if is_over { "No answer from" } else { "Requested, but not answered yet:" };
            if silent.is_empty() { String::new() } else { format!("{what} rank {}.", named(&silent)) }
        }
        None if bursts.with(Vec::is_empty) => {
            "None yet. A burst slows the job while it records, and yields to other profilers.".into()
        }
        None => String::new(),
    };
    let is_error = move || asked.with(|asked| matches!(asked, Some(Err(_))));
    view! { <p role="status" class:error=is_error class:quiet=move || !is_error()>{words}</p> }
}

/// Returns the ranks that have not answered the request with this number.
fn silent(bursts: &[RankBurst], number: u64, ranks: u32) -> Vec<u32> {
    let answered =
        |rank: u32| bursts.iter().any(|found| found.rank.0 == rank && found.burst.request >= number);
    (0..ranks).filter(|&rank| !answered(rank)).collect()
}

/// The figures of a burst: their names, and their meanings as phrases.
const FIGURES: [(&str, &str); 8] = [
    ("Length", "from the first record to the last"),
    ("Compute", "share of the length in which a kernel ran that is not a collective"),
    ("Collectives", "share of the length in which a collective ran"),
    ("Hidden by kernels", "share of the collectives during which a kernel computed"),
    (
        "Hidden by streams",
        "share of the collectives during which a stream that computes was busy, including its copies and short gaps \
         between its kernels; compare this with the overlap of steps",
    ),
    ("Copies", "share of the length with copies or fills"),
    ("Idle", "share of the length in which nothing ran"),
    ("Launch gaps", "number of longer idle stretches, in which the device waited for its host"),
];

#[component]
fn Outcomes(bursts: Signal<Vec<RankBurst>>) -> impl IntoView {
    let mut columns = vec![
        Column::number("Rank", |row: &RankBurst| (f64::from(row.rank.0), row.rank.to_string())),
        Column::number("Received", |row: &RankBurst| {
            (row.age_millis as f64, units::ago(row.age_millis as f64 / 1e3))
        })
        .meaning("time since the burst arrived"),
        Column::text("Outcome", |row: &RankBurst| outcome(&row.burst.outcome)),
    ];
    columns.extend(FIGURES.iter().enumerate().map(|(at, (name, meaning))| {
        Column::text(name, move |row: &RankBurst| figure(&row.burst.outcome, at)).meaning(meaning).right()
    }));
    let kernels = move || {
        bursts
            .get()
            .into_iter()
            .filter_map(|found| match found.burst.outcome {
                BurstOutcome::Recorded(activity) if activity.records > 0 => {
                    Some(view! { <Kernels rank=found.rank.0 activity=activity /> })
                }
                _ => None,
            })
            .collect_view()
    };
    view! {
        <Table testid="burst-table" caption="Bursts by rank" columns=columns rows=bursts key=|row: &RankBurst| row.rank.0 />
        {kernels}
    }
}

fn outcome(outcome: &BurstOutcome) -> String {
    match outcome {
        BurstOutcome::Refused { reason } => format!("nothing recorded: {reason}"),
        BurstOutcome::Recorded(activity) if activity.records == 0 => "nothing ran on its device".into(),
        BurstOutcome::Recorded(activity) => format!("{} records", units::count(activity.records)),
    }
}

/// Returns one of [`FIGURES`].
fn figure(outcome: &BurstOutcome, at: usize) -> String {
    match outcome {
        BurstOutcome::Recorded(activity) if activity.records > 0 => shares(activity)[at].clone(),
        BurstOutcome::Recorded(_) | BurstOutcome::Refused { .. } => "—".into(),
    }
}

fn shares(activity: &Activity) -> [String; 8] {
    let share = |nanos: u64| units::percent(nanos as f64 / activity.span_nanos.max(1) as f64);
    let percent = |ratio: Option<f64>| ratio.map_or_else(|| "—".into(), units::percent);
    [
        units::nanos(activity.span_nanos as f64),
        share(activity.compute_nanos),
        share(activity.collective_nanos),
        percent(activity.overlap_ratio()),
        percent(activity.covered_ratio()),
        share(activity.copy_nanos),
        share(activity.idle_nanos),
        match activity.gaps {
            0 => "none".into(),
            gaps => format!("{gaps}, longest {}", units::nanos(activity.longest_gap_nanos as f64)),
        },
    ]
}

#[component]
fn Kernels(rank: u32, activity: Activity) -> impl IntoView {
    let dropped = (activity.dropped > 0).then(|| {
        view! { <p class="quiet">{units::count(activity.dropped)}" records did not fit and are missing."</p> }
    });
    let row = |kernel: KernelTime| {
        view! {
            <tr>
                <th scope="row"><code>{kernel.name}</code></th>
                <td>{kernel.phase.map_or("—", SpanKind::name)}</td>
                <td class="number">{units::nanos(kernel.total_nanos as f64)}</td>
                <td class="number">{units::count(kernel.calls)}</td>
                <td class="number">{units::nanos(kernel.longest_nanos as f64)}</td>
            </tr>
        }
    };
    view! {
        <details class="others">
            <summary>"Rank "{rank}": top kernels of "{units::count(activity.records)}" records"</summary>
            {dropped}
            <div class="rows" tabindex="0" role="group" aria-label=format!("Kernels of rank {rank}")>
                <table>
                    <thead>
                        <tr>
                            <th scope="col">"Kernel"</th>
                            <th scope="col">"Launched during"</th>
                            <th class="number" scope="col">"Total"</th>
                            <th class="number" scope="col">"Calls"</th>
                            <th class="number" scope="col">"Longest"</th>
                        </tr>
                    </thead>
                    <tbody>{activity.kernels.into_iter().map(row).collect_view()}</tbody>
                </table>
            </div>
        </details>
    }
}
