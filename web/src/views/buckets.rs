//! The Buckets view: one step over all ranks on one clock, and its buckets in numbers.

mod groups;
mod latency;
mod tables;
mod waterfall;

use std::sync::Arc;
use std::time::Duration;

use leptos::prelude::*;
use leptos::task::spawn_local;
use viz::raster::gantt::Gantt;
use wire::live::Waterfall;

use self::groups::Groups;
use self::latency::Latencies;
use self::tables::{BucketTable, SelectedBucket};
use self::waterfall::{Kinds, WaterfallPlot};
use crate::api;
use crate::download;
use crate::keys;
use crate::live::Live;
use crate::range::Range;
use crate::route::{Address, RunId};
use crate::socket::Link;
use crate::theme::Theme;

/// The shortest interval between waterfalls while following the newest step. Faster changes cannot be read.
const FOLLOW: Duration = Duration::from_millis(500);

/// A waterfall, sorted for drawing.
#[derive(Debug)]
pub struct Loaded {
    /// The columns of the waterfall.
    pub waterfall: Waterfall,
    /// The drawing order of the slices.
    pub gantt: Gantt,
}

/// The selection of the view.
#[derive(Clone, Copy)]
pub struct StepSelection {
    address: Address,
    range: Range,
    /// The selected step; `None` follows the newest.
    pub step: Memo<Option<u64>>,
    /// The selected bucket.
    pub bucket: Memo<Option<u32>>,
    /// The selected rank.
    pub rank: Memo<Option<u32>>,
    /// The waterfall shown. It stays until the next one has loaded.
    pub shown: RwSignal<Option<Arc<Loaded>>>,
    /// The reason why the requested step cannot be shown.
    pub error: RwSignal<Option<String>>,
}

impl StepSelection {
    /// Selects a bucket on a rank, or clears the selection.
    pub fn select(&self, bucket: Option<u32>, rank: Option<u32>) {
        self.address.set([
            ("bucket", bucket.map(|bucket| bucket.to_string())),
            ("rank", rank.map(|rank| rank.to_string())),
        ]);
    }

    fn go_to(&self, step: Option<u64>) {
        if step.is_none() {
            self.range.follow();
        }
        self.address.set([("step", step.map(|step| step.to_string()))]);
    }
}

/// Creates the view.
#[component]
pub fn Buckets() -> impl IntoView {
    let address = expect_context::<Address>();
    let live = expect_context::<Live>();
    let range = expect_context::<Range>();
    let selection = StepSelection {
        address,
        range,
        step: Memo::new(move |_| address.number("step").or(range.at.get())),
        bucket: Memo::new(move |_| address.number("bucket").map(|bucket| bucket as u32)),
        rank: Memo::new(move |_| address.number("rank").map(|rank| rank as u32)),
        shown: RwSignal::new(None),
        error: RwSignal::new(None),
    };
    load(selection, live, expect_context::<RunId>());
    keys::global(move |key| {
        match key {
            "," => neighbour(selection, live, -1),
            "." => neighbour(selection, live, 1),
            "f" => toggle_follow(selection),
            "Escape" => selection.select(None, None),
            _ => return false,
        }
        true
    });
    view! {
        <section class="panel" aria-label="Waterfall">
            <Controls selection=selection />
            <Kinds />
            <WaterfallPlot selection=selection />
        </section>
        <SelectedBucket selection=selection />
        <Latencies selection=selection />
        <BucketTable selection=selection />
        <Groups />
    }
}

/// Fetches the requested step: immediately when it changes, and every [`FOLLOW`] while following.
fn load(selection: StepSelection, live: Live, run: RunId) {
    let wanted = StoredValue::new(0u32);
    let fetch = move |step: Option<u64>| {
        let run = run.get_untracked();
        let mine = wanted.try_update_value(|n| {
            *n += 1;
            *n
        });
        async move {
            let answer = api::waterfall(&run, step).await;
            // A later request makes this answer obsolete. A view that is gone has no requests.
            if mine.is_none() || wanted.try_get_value() != mine {
                return;
            }
            match answer {
                Ok(waterfall) => {
                    let gantt = Gantt::new(&waterfall);
                    selection.shown.set(Some(Arc::new(Loaded { waterfall, gantt })));
                    selection.error.set(None);
                }
                Err(error) => selection.error.set(Some(error)),
            }
        }
    };
    Effect::new(move |last: Option<(String, Option<u64>)>| {
        let (wanted, alive) = ((run.get(), selection.step.get()), live.link.get() == Link::Live);
        // Fetch again when the server is back, if it was unreachable before.
        if last.as_ref() != Some(&wanted) || (alive && selection.error.with_untracked(Option::is_some)) {
            spawn_local(fetch(wanted.1));
        }
        wanted
    });
    let newest = move || live.steps.with_value(|steps| steps.step.last().copied());
    let follow = set_interval_with_handle(
        move || {
            let following = selection.step.try_get_untracked() == Some(None);
            let flows = matches!(live.link.get_untracked(), Link::Live);
            let old = selection.shown.with_untracked(|shown| shown.as_ref().map(|s| s.waterfall.step));
            if following && flows && !document().hidden() && newest() != old {
                spawn_local(fetch(None));
            }
        },
        FOLLOW,
    );
    on_cleanup(move || {
        if let Ok(handle) = follow {
            handle.clear();
        }
    });
}

fn toggle_follow(selection: StepSelection) {
    let shown = selection.shown.with_untracked(|shown| shown.as_ref().map(|shown| shown.waterfall.step));
    selection.go_to(if selection.step.get_untracked().is_none() { shown } else { None });
}

/// Selects the step before or after the one shown.
fn neighbour(selection: StepSelection, live: Live, by: isize) {
    let shown = selection
        .step
        .get_untracked()
        .or_else(|| selection.shown.with_untracked(|shown| shown.as_ref().map(|shown| shown.waterfall.step)));
    let next = live.steps.with_value(|steps| {
        let at = steps.step.partition_point(|&step| step < shown.unwrap_or(u64::MAX));
        let row = at.saturating_add_signed(by).min(steps.step.len().checked_sub(1)?);
        Some(steps.step[row])
    });
    if next.is_some() {
        selection.go_to(next);
    }
}

#[component]
fn Controls(selection: StepSelection) -> impl IntoView {
    let live = expect_context::<Live>();
    let theme = expect_context::<Theme>();
    let run = expect_context::<RunId>();
    let shown_step =
        Memo::new(move |_| selection.shown.with(|shown| shown.as_ref().map(|s| s.waterfall.step)));
    let facts = Signal::derive(move || {
        selection
            .shown
            .with(|shown| {
                let waterfall = &shown.as_ref()?.waterfall;
                let bound = waterfall.clock_bound.iter().copied().fold(f64::NAN, f64::max);
                let clocks = if bound.is_nan() {
                    "clock bounds unknown".into()
                } else {
                    format!("clocks within {}", units::nanos(bound))
                };
                Some(format!(
                    "{} · {} ranks · {clocks}",
                    units::nanos(waterfall.span_nanos),
                    waterfall.rank.len()
                ))
            })
            .unwrap_or_default()
    });
    let entered = move |event: leptos::ev::Event| {
        if let Ok(step) = event_target_value(&event).trim().replace(',', "").parse() {
            selection.go_to(Some(step));
        }
    };
    let save_png = move |_| download::png("waterfall.png", "waterfall", theme.inks().ground);
    let trace = move || api::export_url(&run.get(), "perfetto", shown_step.get().map(|step| (step, step)));
    view! {
        <div class="panel-head">
            <div class="stepper" role="group" aria-label="Step">
                <button aria-label="Previous step" title="Previous step (,)" on:click=move |_| neighbour(selection, live, -1)>"‹"</button>
                <label class="field">
                    <span>"Step"</span>
                    <input
                        inputmode="numeric"
                        data-testid="step"
                        prop:value=move || shown_step.get().map(|step| step.to_string()).unwrap_or_default()
                        on:change=entered
                    />
                </label>
                <button aria-label="Next step" title="Next step (.)" on:click=move |_| neighbour(selection, live, 1)>"›"</button>
            </div>
            <div class="segments" role="group" aria-label="Newest or selected step">
                <button
                    data-testid="follow"
                    aria-pressed=move || selection.step.get().is_none().to_string()
                    title="Follow the newest step (F)"
                    on:click=move |_| toggle_follow(selection)
                >
                    "Follow"
                </button>
            </div>
            <span class="facts tabular" data-testid="waterfall-facts">{facts}</span>
            <span class="error" role="status">{move || selection.error.get().unwrap_or_default()}</span>
            <span class="grow"></span>
            <a class="button quiet" download="" href=trace>"Perfetto trace of this step"</a>
            <button class="quiet" on:click=save_png>"PNG"</button>
        </div>
    }
}
