//! The chart of the bar: step time over the whole run, with steps and wall clock below. Dragging selects steps.

use leptos::prelude::*;
use viz::raster::{Frame, line};
use viz::span::Span;
use viz::{measure, palette, ticks};

use super::ended;
use crate::canvas::{Margins, Size};
use crate::dates::time_of_day;
use crate::live::Live;
use crate::pen::{Align, Pen};
use crate::range::Range;
use crate::step_chart::{Extent, StepChart, StepCharts};
use crate::theme::Theme;

pub const MARGINS: Margins = Margins { left: 56.0, right: 16.0, top: 10.0, bottom: 32.0 };
const HEIGHT: f64 = 92.0;
/// The room for a step and its time below the chart, in pixels.
const TICK_PIXELS: f64 = 96.0;

/// The chart.
#[component]
pub fn Strip() -> impl IntoView {
    let (live, range) = (expect_context::<Live>(), expect_context::<Range>());
    let (charts, theme) = (expect_context::<StepCharts>(), expect_context::<Theme>());
    view! {
        <StepChart
            label="Step time over the whole run; the fields above select steps"
            decorative=true
            testid="timeline-strip"
            height=Signal::derive(|| HEIGHT)
            margins=MARGINS
            extent=Extent::WholeRun
            draw=Box::new(move |frame, size| draw(frame, size, live, theme.inks().line))
            overlay=Box::new(move |pen, size| overlay(pen, size, live, range, charts))
        />
    }
}

fn top(live: Live) -> f64 {
    live.steps.with_value(|steps| ticks::ceiling(f64::from(measure::exceeded_by(&steps.step_nanos, 2)) * 1.1))
}

fn draw(frame: &mut Frame<'_>, size: Size, live: Live, color: palette::Rgba) {
    live.drawn.track();
    let top = top(live) as f32;
    live.steps.with_value(|steps| {
        let values = &steps.step_nanos;
        let view = steps.bounds();
        let thickness = 1.25 * size.ratio as f32;
        line::draw(frame, &line::Line { step: &steps.step, values, view, top, color, thickness });
    });
}

fn overlay(pen: &Pen, size: Size, live: Live, range: Range, charts: StepCharts) {
    let stored = range.stored();
    if stored.is_empty() {
        return;
    }
    let top = top(live);
    pen.axis_left(top, &ticks::nanos(Span::new(0.0, top), 2));
    axis(pen, size, live, stored);
    let x = |step: f64| stored.to_pixel(step.clamp(stored.start, stored.end), size.width);
    let visible = range.visible();
    let (left, right) = (x(visible.start), x(visible.end));
    let shade = |from: f64, to: f64, color: &str, share: f64| {
        pen.area(&[(from, 0.0), (to, 0.0), (to, size.height), (from, size.height)], color, share);
    };
    if range.follows() {
        shade(left, right, pen.inks.accent, 0.1);
    } else {
        shade(0.0, left, pen.inks.ground, 0.65);
        shade(right, size.width, pen.inks.ground, 0.65);
        shade(left, right, pen.inks.accent, 0.1);
        for end in [left, right] {
            pen.rect(end - 1.0, 0.0, 2.0, size.height, pen.inks.accent);
            pen.rect(end - 2.5, size.height / 2.0 - 8.0, 5.0, 16.0, pen.inks.accent);
        }
    }
    charts.draw_crosshair(pen, size, stored);
}

/// Writes steps, and the wall clock below them.
fn axis(pen: &Pen, size: Size, live: Live, bounds: Span) {
    // A phone has room for three.
    let count = ((size.width / TICK_PIXELS) as usize).max(3);
    let mut last_time = String::new();
    for tick in ticks::whole(bounds, count) {
        let x = bounds.to_pixel(tick.value + 0.5, size.width);
        if !(0.0..=size.width).contains(&x) {
            continue;
        }
        pen.rect(x.round(), size.height, 1.0, 4.0, pen.inks.grid);
        // The name of the row is at the left edge.
        let begin = |label: &str| x.max(pen.text_width(label) / 2.0 - 3.0);
        pen.text_below(begin(&tick.label), 11.0, &tick.label, pen.inks.ink);
        // Steps that take milliseconds have the same time of day for long.
        let time = ended(live, tick.value as u64).map(time_of_day).unwrap_or_default();
        if time != last_time {
            pen.text_below(begin(&time), 24.0, &time, pen.inks.muted);
            last_time = time;
        }
    }
    pen.text(-MARGINS.left, size.height + 11.0, "step", Align::Start, pen.inks.muted);
    pen.text(-MARGINS.left, size.height + 24.0, "time", Align::Start, pen.inks.muted);
}
