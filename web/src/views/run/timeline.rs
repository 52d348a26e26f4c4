//! The timeline: a strip with the step times of the whole run, and a slider that rewinds every view to a stored step.
//!
//! The slider is the browser's own, so that keys, touch and screen readers work. The strip below it is drawn.

use leptos::prelude::*;
use units::fixed;
use viz::raster::{Frame, line};
use viz::{measure, palette, ticks};
use wire::live::Part;

use crate::api::Scope;
use crate::canvas::{Margins, Size};
use crate::keys;
use crate::live::Live;
use crate::pen::Pen;
use crate::plot::Plot;
use crate::range::Range;
use crate::widgets::pixels;

/// Half the width of the slider's handle: at either end, the handle's center is this far inside the slider.
const HALF_HANDLE: f64 = 7.0;
const MARGINS: Margins = Margins { left: HALF_HANDLE, right: HALF_HANDLE, top: 2.0, bottom: 2.0 };
const HEIGHT: f64 = 36.0;

/// Creates the timeline.
#[component]
pub fn Timeline() -> impl IntoView {
    let live = expect_context::<Live>();
    let range = expect_context::<Range>();
    keys::global(move |key| {
        match key {
            "l" => range.rewind(None),
            "[" => range.move_by(-1),
            "]" => range.move_by(1),
            _ => return false,
        }
        true
    });
    let bounds = Signal::derive(move || {
        live.drawn.track();
        live.steps.with_value(|steps| steps.bounds())
    });
    let last = Signal::derive(move || (bounds.get().end - 1.0).max(0.0));
    let at = Signal::derive(move || range.at.get().map_or(last.get(), |at| at as f64));
    let is_live = Signal::derive(move || range.at.get().is_none());
    // A step that is not stored shows the one before it.
    let slide = move |event: leptos::ev::Event| {
        let Ok(step) = event_target_value(&event).parse::<u64>() else { return };
        range.rewind(((step as f64) < last.get_untracked()).then_some(step));
    };
    let enter = move |event: leptos::ev::Event| {
        let step = event_target_value(&event).trim().replace(',', "").parse::<u64>().ok();
        let bounds = bounds.get_untracked();
        let kept =
            step.map(|step| step.clamp(bounds.start as u64, (bounds.end - 1.0).max(bounds.start) as u64));
        range.rewind(kept.filter(|step| (*step as f64) < last.get_untracked()));
    };
    let handle = NodeRef::<leptos::html::Input>::new();
    // The value is set last, because a slider clamps it to its current range.
    Effect::new(move |_| {
        let (bounds, at) = (bounds.get(), at.get());
        if let Some(handle) = handle.get() {
            let _ = handle.set_attribute("min", &fixed(bounds.start, 0).to_string());
            let _ = handle.set_attribute("max", &fixed((bounds.end - 1.0).max(0.0), 0).to_string());
            handle.set_value(&fixed(at, 0).to_string());
        }
    });
    let says = Signal::derive(move || {
        let step = units::count(at.get() as u64);
        if is_live.get() { format!("live, step {step}") } else { format!("step {step}") }
    });
    let age = move |at: u64| {
        let ended = live.steps.with_value(|steps| {
            let row = steps.step.partition_point(|&step| step <= at).checked_sub(1)?;
            Some(steps.ended_unix_nanos[row]).filter(|&nanos| nanos > 0)
        });
        ended.map(|nanos| units::ago((live.now.get() - nanos as f64 / 1e6) / 1000.0))
    };
    // What the figures of the page cover, if not the newest steps.
    let covers = move || {
        let scope = match range.scope() {
            Scope::Newest => None,
            Scope::UpTo(at) => age(at),
            Scope::Between(first, last) => {
                Some(format!("figures of steps {} to {}", units::count(first), units::count(last)))
            }
        };
        live.selected_error.get().or(scope).unwrap_or_default()
    };
    let unseen = Signal::derive(move || bounds.get().len() < 2.0);
    view! {
        <section class="timeline" aria-label="Time" class:unused=unseen data-testid="timeline">
            <div class="strip" style:height=pixels(HEIGHT)>
                <Plot label="" decorative=true testid="timeline-strip" height=Signal::derive(|| HEIGHT) margins=MARGINS
                    draw=Box::new(move |frame, size| draw(frame, size, live))
                    overlay=Box::new(move |pen, size| overlay(pen, size, live, range))
                    on_gesture=Box::new(|_, _| false) />
                <input type="range" node_ref=handle data-testid="rewind" step="1" on:input=slide
                    aria-label="Rewind to a step" aria-valuetext=says />
            </div>
            <label class="field">
                <span>"Up to step"</span>
                <input inputmode="numeric" data-testid="at" on:change=enter
                    prop:value=move || fixed(at.get(), 0).to_string() />
            </label>
            <button data-testid="go-live" title="Show the newest step (L)" aria-pressed=move || is_live.get().to_string()
                on:click=move |_| range.rewind(None)>
                "Now"
            </button>
            <small class="when tabular" data-testid="covers">{covers}</small>
        </section>
    }
    .into_any()
}

fn draw(frame: &mut Frame<'_>, size: Size, live: Live) {
    live.drawn.track();
    live.steps.with_value(|steps| {
        let values = &steps.step_nanos;
        let top = ticks::ceiling(f64::from(measure::exceeded_by(values, 2)) * 1.1) as f32;
        let (view, colour) = (steps.bounds(), palette::part(Part::Backward));
        let thickness = 1.25 * size.ratio as f32;
        line::draw(frame, &line::Line { step: &steps.step, values, view, top, colour, thickness });
    });
}

/// Draws the range that is visible in the charts, and fades the steps after the one to which the dashboard is rewound.
fn overlay(pen: &Pen, size: Size, live: Live, range: Range) {
    let view = range.view();
    let bounds = live.steps.with_value(|steps| steps.bounds());
    if bounds.is_empty() {
        return;
    }
    let x = |step: f64| bounds.to_pixel(step.clamp(bounds.start, bounds.end), size.width);
    let (left, right) = (x(view.start), x(view.end));
    pen.area(&[(left, 0.0), (right, 0.0), (right, size.height), (left, size.height)], pen.inks.accent, 0.14);
    if let Some(at) = range.at.get() {
        let at = x(at as f64 + 1.0);
        pen.area(
            &[(at, 0.0), (size.width, 0.0), (size.width, size.height), (at, size.height)],
            pen.inks.ground,
            0.7,
        );
    }
}
