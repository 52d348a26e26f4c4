//! The row of a run. Its elements stay while the run goes on, and only their texts change.

use std::sync::Arc;

use leptos::ev;
use leptos::prelude::*;
use model::attributes;
use model::runs::{course, verdict};
use model::verdict::state;
use wasm_bindgen::JsCast as _;
use wire::views::{RunState, RunSummary};

use super::listing::Listing;
use crate::route::Address;
use crate::widgets::StateChip;

/// The size of the line of step times, in CSS pixels as in the style sheet.
const COURSE: (f64, f64) = (64.0, 20.0);

type Run = Memo<Option<Arc<RunSummary>>>;

/// Returns a text that changes only if what `read` returns changes.
fn said(run: Run, read: impl Fn(&RunSummary) -> String + Send + Sync + 'static) -> Memo<String> {
    Memo::new(move |_| run.with(|run| run.as_deref().map(&read).unwrap_or_default()))
}

/// The row of a run. `in_group` is true below the heading of a group.
#[component]
pub fn Row(listing: Listing, id: String, in_group: bool) -> impl IntoView {
    let address = expect_context::<Address>();
    let run = listing.run(id.clone());
    let path = format!("/runs/{id}");
    let second_name = {
        let id = id.clone();
        said(run, move |run| if run.name == id { String::new() } else { id.clone() })
    };
    let now = listing.live.now;
    let started = said(run, move |run| units::ago((now.get() - run.started_unix_millis as f64) / 1000.0));
    let open = {
        let path = path.clone();
        // A link or a button in the row handles its own clicks.
        move |event: ev::MouseEvent| {
            if !event.default_prevented() && !event.ctrl_key() && !event.meta_key() && !is_on_link(&event) {
                address.go(&path);
            }
        }
    };
    let state = Memo::new(move |_| run.with(|run| run.as_ref().map(|run| run.state)));
    view! {
        <tr data-run=id.clone() class:member=in_group on:click=open>
            <td class="tick"><Tick listing=listing id=id.clone() /></td>
            <td>{move || state.get().map(|state| view! { <StateChip state=state /> })}</td>
            <td class="name">
                <a href=path>{said(run, |run| run.name.clone())}</a>
                <small>{second_name}</small>
                <small class="labels">{said(run, |run| attributes::written(run).collect::<Vec<_>>().join("  "))}</small>
            </td>
            <td data-label="Started" class="nowrap">{started}</td>
            <Figure run=run name="Ranks" read=|run| format!("{} / {}", units::count(run.ranks_reporting.into()), units::count(run.ranks_expected.into())) />
            <Figure run=run name="Steps" read=|run| units::count(run.steps) />
            <td class="number" data-label="Step time"><StepTime run=run /></td>
            <td class="number" data-label="To best"><ToBest listing=listing run=run /></td>
            <Figure run=run name="Throughput" read=throughput />
            <Figure run=run name="Overlap" read=|run| or_dash(run.overlap_ratio.map(units::percent)) />
            <Figure run=run name="Efficiency" read=|run| or_dash(run.efficiency_implied.map(units::percent)) />
            <td class="worst"><Worst run=run /></td>
        </tr>
    }
}

/// A button that ticks a run.
#[component]
fn Tick(listing: Listing, id: String) -> impl IntoView {
    let is_picked = {
        let id = id.clone();
        Memo::new(move |_| listing.picked.read().contains(&id))
    };
    let (label, pick) = (format!("Tick {id}"), id.clone());
    let toggle = move |event: ev::MouseEvent| {
        event.prevent_default();
        listing.toggle_picked(&id);
    };
    view! {
        <button
            class="pick"
            data-pick=pick
            aria-pressed=move || is_picked.get().to_string()
            aria-label=label
            on:click=toggle
        ></button>
    }
}

#[component]
fn Figure(run: Run, name: &'static str, read: fn(&RunSummary) -> String) -> impl IntoView {
    view! { <td class="number" data-label=name>{said(run, read)}</td> }
}

/// The step time over the run as a line, and the newest mean.
#[component]
fn StepTime(run: Run) -> impl IntoView {
    let (width, height) = COURSE;
    // The line is 1.5 pixels thick and must not be cut off at the edges.
    let line = said(run, move |run| course::path(&run.step_times, width, height - 2.0).unwrap_or_default());
    let words = said(run, |run| course::words(&run.step_times));
    view! {
        <span class="timed">
            <svg
                class="course"
                role="img"
                aria-label=words
                viewBox=format!("0 -1 {width} {height}")
                class:hidden=move || line.read().is_empty()
            >
                <path d=line></path>
            </svg>
            <span>{said(run, |run| or_dash(run.step_time_nanos.map(|nanos| units::nanos(nanos as f64))))}</span>
        </span>
    }
}

/// The difference to the best run of the same name.
#[component]
fn ToBest(listing: Listing, run: Run) -> impl IntoView {
    let text = said(run, move |run| match listing.groups.read().to_best(run) {
        Some(0.0) => "best".into(),
        share => or_dash(share.map(units::signed_percent)),
    });
    view! { <span class:best=move || *text.read() == "best">{text}</span> }
}

/// What is wrong with a run in short, and its sentence.
#[derive(Clone, Default, PartialEq)]
struct Told {
    /// The worst verdict in short: its kind and its text.
    short: Option<(&'static str, String)>,
    sentence: String,
}

fn told(run: &RunSummary) -> Told {
    let hang = run.hang.as_ref().map(|hang| hang.sentence.clone());
    let sentence = hang.or_else(|| run.verdict.clone()).unwrap_or_default();
    // A hang or a failure is more important than a delay.
    let is_broken = matches!(run.state, RunState::Hung | RunState::Failed);
    let worst = run.worst.as_ref().filter(|_| !is_broken || sentence.is_empty());
    Told { short: worst.map(|worst| (state(worst.state), verdict::short(worst))), sentence }
}

/// The worst verdict of a run, its hang or its failure.
#[component]
fn Worst(run: Run) -> impl IntoView {
    let told = Memo::new(move |_| run.with(|run| run.as_deref().map(told).unwrap_or_default()));
    move || {
        let Told { short, sentence } = told.get();
        match short {
            Some((kind, text)) => view! {
                <span class="fault" data-kind=kind title=sentence.clone()>{text}</span>
                <span class="more-words">{sentence}</span>
            }
            .into_any(),
            None => or_dash((!sentence.is_empty()).then_some(sentence)).into_any(),
        }
    }
}

fn throughput(run: &RunSummary) -> String {
    let unit = format!("{}/s", run.sample_unit);
    or_dash(run.throughput.map(|rate| units::rate(rate, &unit)))
}

fn is_on_link(event: &ev::MouseEvent) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    target.is_some_and(|target| target.closest("a").is_ok_and(|link| link.is_some()))
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "—".into())
}
