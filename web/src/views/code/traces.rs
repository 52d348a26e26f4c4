//! Traces of the same steps of some ranks by PyTorch's profiler, and what differs between two of them.

use leptos::prelude::*;
use leptos::task::spawn_local;
use units::{bytes, nanos};
use wire::views::captures::{Capture, CaptureOutcome, CapturedRank, StoredTrace, TraceComparison};

use crate::api;
use crate::live::Live;
use crate::polled::polled;
use crate::route::RunId;
use crate::socket::Link;
use crate::traced::Differences;

/// The time between two fetches while a rank has not answered, and otherwise, in milliseconds.
const FETCH_MILLIS: (f64, f64) = (1_000.0, 5_000.0);

/// The section.
#[component]
pub fn Traces(rank: Memo<Option<u32>>, other: Memo<Option<u32>>) -> impl IntoView {
    let live = expect_context::<Live>();
    let is_waiting = RwSignal::new(false);
    let interval =
        Signal::derive(move || Some(if is_waiting.get() { FETCH_MILLIS.0 } else { FETCH_MILLIS.1 }));
    let captures = polled(interval, Some(()), |run, ()| async move { api::captures(&run).await.ok() });
    let has_ended =
        Memo::new(move |_| live.run.with(|run| run.as_ref().is_none_or(|run| run.summary.state.has_ended())));
    Effect::new(move |_| {
        let newest =
            captures.with(|all| all.iter().flatten().next().is_some_and(|newest| !newest.is_complete()));
        is_waiting.set(newest && !has_ended.get());
    });
    let shown = RwSignal::new(None::<u64>);
    // The chosen capture, or the newest with two traces.
    let compared = Memo::new(move |_| {
        captures.with(|all| {
            let comparable = |capture: &&Capture| capture.stored().count() > 1;
            let mut found = all.iter().flatten().filter(comparable);
            let chosen = found.clone().find(|capture| Some(capture.id) == shown.get());
            chosen.or_else(|| found.next()).map(|capture| capture.id)
        })
    });
    let is_none = move || captures.with(|all| all.as_ref().is_some_and(Vec::is_empty));
    view! {
        <section class="panel" aria-label="Traces" data-testid="traces">
            <div class="panel-head">
                <h2>"Traces"<small>" a few steps by PyTorch's profiler, which makes them slower"</small></h2>
                <span class="grow"></span>
                <Ask rank=rank other=other has_ended=has_ended />
            </div>
            <Show when=is_none>
                <p class="quiet" data-testid="traces-none">
                    "There are no traces yet. In a terminal: "<code>"paceline trace"</code>
                </p>
            </Show>
            <ul class="captures">
                {move || {
                    let all = captures.get().unwrap_or_default();
                    all.into_iter()
                        .map(|capture| view! { <Listed capture=capture compared=compared shown=shown has_ended=has_ended /> })
                        .collect_view()
                }}
            </ul>
            <Comparison capture=compared />
        </section>
    }
}

/// The button that asks the chosen ranks for a trace; without a choice, the culprit of the verdict and another rank.
#[component]
fn Ask(rank: Memo<Option<u32>>, other: Memo<Option<u32>>, has_ended: Memo<bool>) -> impl IntoView {
    let (run, live) = (expect_context::<RunId>(), expect_context::<Live>());
    let said = RwSignal::new(String::new());
    let chosen = Memo::new(move |_| -> Vec<u32> { rank.get().into_iter().chain(other.get()).collect() });
    let ask = move |_| {
        spawn_local(async move {
            let ranks = chosen.get_untracked();
            let answer = api::ask_for_traces(&run.get_untracked(), &ranks).await;
            said.set(answer.err().unwrap_or_default());
        });
    };
    let is_unreachable = move || matches!(live.link.get(), Link::Lost(_) | Link::Connecting);
    let label = move || match chosen.get()[..] {
        [first] => format!("Trace rank {first}"),
        [first, second] => format!("Trace ranks {first} and {second}"),
        _ => "Trace 3 steps".into(),
    };
    view! {
        <span class="error" role="status">{said}</span>
        <button disabled=move || is_unreachable() || has_ended.get() on:click=ask data-testid="trace">{label}</button>
    }
}

/// One capture with the answers of its ranks.
#[component]
fn Listed(
    capture: Capture,
    compared: Memo<Option<u64>>,
    shown: RwSignal<Option<u64>>,
    has_ended: Memo<bool>,
) -> impl IntoView {
    let (id, first) = (capture.id, capture.first_step.0);
    let steps = steps(first, capture.steps);
    let why = if capture.automatic { ", because of a verdict" } else { "" };
    let has_two = capture.stored().count() > 1;
    let ranks = capture
        .ranks
        .into_iter()
        .map(|captured| view! { <Answer id=id captured=captured asked=first has_ended=has_ended /> });
    let ranks = ranks.collect_view();
    view! {
        <li class="capture" data-testid="capture">
            <b>{format!("Asked for {steps}{why}")}</b>
            <Show when=move || has_two && compared.get() != Some(id)>
                " "<button class="quiet" on:click=move |_| shown.set(Some(id))>"Compare"</button>
            </Show>
            <ul>{ranks}</ul>
        </li>
    }
}

fn steps(first: u64, count: u32) -> String {
    match count {
        0 | 1 => format!("step {}", units::count(first)),
        _ => format!("steps {} to {}", units::count(first), units::count(first + u64::from(count) - 1)),
    }
}

#[component]
fn Answer(id: u64, captured: CapturedRank, asked: u64, has_ended: Memo<bool>) -> impl IntoView {
    let run = expect_context::<RunId>();
    let rank = captured.rank.0;
    let words = match captured.outcome {
        CaptureOutcome::Stored(stored) => {
            let href = move || format!("/api/v1/runs/{}/captures/{id}/ranks/{rank}", run.get());
            let name = format!("rank-{rank}.trace.json.gz");
            view! { {told(&stored, asked)}" "<a rel="external" download=name href=href>"Download"</a> }
                .into_any()
        }
        CaptureOutcome::Refused { reason } => format!("no trace: {reason}").into_any(),
        CaptureOutcome::Waiting => {
            (move || if has_ended.get() { "has not answered" } else { "waiting for its answer" }).into_any()
        }
    };
    view! { <li>{format!("Rank {rank}: ")}{words}</li> }
}

/// Says what is in a trace.
fn told(stored: &StoredTrace, asked: u64) -> String {
    let first = stored.first_step.0;
    let late = if first > asked { " (it was beyond the first one asked for)" } else { "" };
    let pause = nanos(stored.pause_nanos as f64);
    format!(
        "{}{late}, {}; it paused the training for {pause}.",
        steps(first, stored.steps),
        bytes(stored.bytes)
    )
}

/// What differs between the two ranks of a capture.
#[component]
fn Comparison(capture: Memo<Option<u64>>) -> impl IntoView {
    let run = expect_context::<RunId>();
    let fetched = LocalResource::new(move || {
        let (run, capture) = (run.get(), capture.get());
        async move {
            match capture {
                Some(capture) => Some(api::trace_comparison(&run, capture).await),
                None => None,
            }
        }
    });
    let answer = Memo::new(move |_| fetched.get().flatten());
    let error = move || answer.with(|answer| answer.as_ref()?.as_ref().err().cloned());
    let found = Memo::new(move |_| answer.with(|answer| answer.as_ref()?.as_ref().ok().cloned()));
    view! {
        <p class="error" role="status" data-testid="traces-error">{error}</p>
        {move || found.get().map(|compared| view! { <Found compared=compared /> })}
    }
}

#[component]
fn Found(compared: TraceComparison) -> impl IntoView {
    let left_out = match compared.left_out {
        0 => String::new(),
        more => format!(" {} more differ less.", units::count(more)),
    };
    view! {
        <p class="quiet" data-testid="traces-summary">{tell_both(&compared)}{left_out}</p>
        <Differences rows=compared.rows sides=["First rank", "Other rank"] />
    }
}

/// Says how long the steps of both ranks take, how much of that is outside of operators, and how long kernels and gaps take.
pub(super) fn tell_both(compared: &TraceComparison) -> String {
    let TraceComparison { rank, against, own, other, .. } = compared;
    let device = match (own.kernel_nanos.zip(own.gap_nanos), other.kernel_nanos.zip(other.gap_nanos)) {
        (Some((own_kernels, own_gaps)), Some((other_kernels, other_gaps))) => format!(
            " Kernels: {} and {}; launch gaps: {} and {}.",
            nanos(own_kernels),
            nanos(other_kernels),
            nanos(own_gaps),
            nanos(other_gaps)
        ),
        _ => String::new(),
    };
    format!(
        "A step takes {} on rank {rank} and {} on rank {against}. Outside of operators: {} and {}.{device}",
        nanos(own.step_nanos),
        nanos(other.step_nanos),
        nanos(own.outside_nanos),
        nanos(other.outside_nanos)
    )
}
