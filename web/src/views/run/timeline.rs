//! The bar over every view: the step times of the whole run, what happened when, and the selection of steps, which every
//! figure below follows.

mod marks;
mod strip;

use leptos::prelude::*;
use viz::span::Span;

use self::marks::Marks;
use self::strip::Strip;
use crate::dates::time_of_day;
use crate::live::Live;
use crate::range::{Range, RangeButtons};

/// Creates the bar.
#[component]
pub fn Timeline() -> impl IntoView {
    let live = expect_context::<Live>();
    let range = expect_context::<Range>();
    let unseen = Signal::derive(move || range.stored().len() < 2.0);
    // Steps may still come to a run that goes on, and then nothing moves.
    let absent = move || unseen.get() && live.has_ended();
    view! {
        <section class="timeline" aria-label="Steps" class:unused=unseen class:absent=absent data-testid="timeline">
            <div class="timeline-head">
                <h2>"Step time"</h2>
                <small class="tabular" role="status" data-testid="covers">{move || covers(live, range)}</small>
                <span class="grow"></span>
                <Ends />
                <RangeButtons />
            </div>
            <Marks />
            <Strip />
        </section>
    }
    .into_any()
}

/// Says which steps the figures below cover.
fn covers(live: Live, range: Range) -> String {
    if let Some(error) = live.selected_error.get() {
        return error;
    }
    let observed = live.run.with(|run| run.as_ref().and_then(|run| run.report.step_range));
    let Some((first, last)) = observed else { return String::new() };
    let time = |step| ended(live, step).map(time_of_day);
    let times = match (range.follows(), time(first), time(last)) {
        (false, Some(from), Some(to)) => format!(", {from} to {to}"),
        _ => String::new(),
    };
    format!("figures of steps {} to {}{times}", units::count(first), units::count(last))
}

/// Returns the end of a step, or of the last stored one before it, in milliseconds since the Unix epoch.
pub fn ended(live: Live, step: u64) -> Option<f64> {
    live.steps.with_value(|steps| {
        let row = steps.step.partition_point(|&stored| stored <= step).checked_sub(1)?;
        Some(steps.ended_unix_nanos[row]).filter(|&nanos| nanos > 0).map(|nanos| nanos as f64 / 1e6)
    })
}

/// The first and the last step in numbers, for the keyboard and for exact ranges.
#[component]
fn Ends() -> impl IntoView {
    let range = expect_context::<Range>();
    let shown = Signal::derive(move || range.visible_ends().unwrap_or_default());
    let number = |event: leptos::ev::Event| {
        event_target_value(&event).trim().replace(',', "").parse::<u32>().ok().map(f64::from)
    };
    let enter_first = move |event: leptos::ev::Event| {
        if let Some(first) = number(event) {
            let last = shown.get_untracked().1 as f64;
            range.select(Span::new(first.min(last), last + 1.0));
        }
    };
    let enter_last = move |event: leptos::ev::Event| {
        if let Some(last) = number(event) {
            let first = shown.get_untracked().0 as f64;
            range.select(Span::new(first, last.max(first) + 1.0));
        }
    };
    view! {
        <div class="field" role="group" aria-label="Selected steps">
            <label class="field">
                <span>"Steps"</span>
                <input
                    inputmode="numeric"
                    data-testid="first-step"
                    prop:value=move || shown.get().0.to_string()
                    on:change=enter_first
                />
            </label>
            <label class="field">
                <span>"to"</span>
                <input
                    inputmode="numeric"
                    data-testid="last-selected-step"
                    prop:value=move || shown.get().1.to_string()
                    on:change=enter_last
                />
            </label>
        </div>
    }
}
