//! The utilization over steps: the share of each step in which ranks compute, and in which their devices run kernels.

use leptos::prelude::*;
use leptos_use::signal_throttled;
use model::points::Points;
use viz::palette::{self, Pattern, Rgba};
use viz::raster::{Frame, line};
use viz::span::Span;
use viz::steps::Steps;
use viz::ticks;
use wire::live::Part;
use wire::live::tile::{Measure, Reduce};
use wire::usage::Usage;
use wire::views::ComputedOn;

use super::{MARGINS, WITH_STEPS};
use crate::api::{self, Cells, Ranks};
use crate::canvas::Size;
use crate::live::Live;
use crate::pen::Pen;
use crate::plot::Stretch;
use crate::polled::polled;
use crate::range::Range;
use crate::step_chart::{StepChart, StepCharts, draw_step_axis};
use crate::widgets::Legend;

/// The parts of a step in which a rank computes.
const COMPUTE: [Part; 3] = [Part::Forward, Part::Backward, Part::Optimizer];
const COMPUTING: Rgba = palette::part(Part::Forward);
const RUNNING: Rgba = palette::part(Part::ExposedTransfer);
/// The largest number of points of the devices' line.
const MAX_POINTS: u32 = 1_024;
/// The time between requests during a live run, in milliseconds.
const AGAIN_MILLIS: f64 = 2_000.0;
/// The shortest time between two requests, in milliseconds. A drag changes the range in every frame.
const AT_MOST_EVERY_MILLIS: f64 = 400.0;

/// Returns the share of each step in which a rank computes, as the mean over ranks.
fn computing(steps: &Steps) -> Points {
    let share = |row: usize| {
        let nanos = |part: Part| steps.parts[part as usize][row];
        let whole: f32 = Part::ALL.map(nanos).iter().sum();
        COMPUTE.map(nanos).iter().sum::<f32>() / whole
    };
    Points { step: steps.step.clone(), values: (0..steps.step.len()).map(share).collect() }
}

/// The chart. The last one of all has the axis of steps below it.
#[component]
pub(super) fn UtilizationChart(is_last: bool) -> impl IntoView {
    let (margins, height) = if is_last { (WITH_STEPS, 100.0) } else { (MARGINS, 84.0) };
    let live = expect_context::<Live>();
    let (range, charts) = (expect_context::<Range>(), expect_context::<StepCharts>());
    let stretch = expect_context::<Stretch>();
    let running = running_devices();
    let computing = Memo::new(move |_| {
        live.drawn.track();
        live.steps.with_value(computing)
    });
    let draw = move |frame: &mut Frame<'_>, size: Size| {
        let view = range.visible();
        let thickness = 1.5 * size.ratio as f32;
        let mut draw_line = |points: &Points, color: Rgba| {
            let Points { step, values } = points;
            line::draw(frame, &line::Line { step, values, view, top: 1.0, color, thickness });
        };
        running.with(|points| points.iter().for_each(|points| draw_line(points, RUNNING)));
        computing.with(|points| draw_line(points, COMPUTING));
    };
    let overlay = move |pen: &Pen, size: Size| {
        let view = range.visible();
        pen.axis_left(1.0, &ticks::shares(Span::new(0.0, 1.0), 2));
        if is_last {
            draw_step_axis(pen, size, view);
        }
        charts.draw_crosshair(pen, size, view);
        let Some(step) = charts.crosshair.get().step else { return };
        let percent = |value: Option<f32>| value.map(|value| units::percent(f64::from(value)));
        let compute = percent(computing.with(|points| points.value_at(step)));
        let run = percent(running.with(|points| points.as_ref()?.value_at(step)));
        let texts =
            [compute.map(|share| format!("{share} compute")), run.map(|share| format!("{share} devices"))];
        let text = texts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        pen.write_at_crosshair(view.to_pixel(step as f64 + 0.5, size.width), 0.0, &text);
    };
    let has_devices = Memo::new(move |_| running.with(Option::is_some));
    let legend = move || {
        has_devices.get().then(|| {
            view! {
                <Legend items=vec![
                    (COMPUTING, Pattern::Solid, "ranks compute"),
                    (RUNNING, Pattern::Solid, "devices run kernels, waiting ones included"),
                ] />
            }
        })
    };
    view! {
        <h2 class="chart-title">
            "Utilization"
            <small>" share of the step in which ranks compute"</small>
        </h2>
        {legend}
        <StepChart
            label="Utilization over steps"
            testid="chart-utilization"
            height=Signal::derive(move || height * stretch.get())
            margins=margins
            draw=Box::new(draw)
            overlay=Box::new(overlay)
        />
    }
}

/// Fetches the share of the time in which devices run kernels, as the mean over ranks; `None` without devices.
fn running_devices() -> Signal<Option<Points>> {
    let (live, range) = (expect_context::<Live>(), expect_context::<Range>());
    let has_devices = move || {
        live.run.with(|run| run.as_ref().is_some_and(|run| run.report.computed_on == ComputedOn::Gpu))
    };
    let wanted = Memo::new(move |_| range.visible_ends().filter(|_| has_devices()));
    let wanted: Signal<Option<(u64, u64)>> = signal_throttled(wanted, AT_MOST_EVERY_MILLIS);
    polled(Some(AGAIN_MILLIS), wanted, |run, steps| async move {
        let cells = Cells {
            measure: Measure::Usage(Usage::DeviceBusy),
            reduce: Reduce::Mean,
            steps,
            ranks: Ranks::Between(0, u32::MAX),
            most: (MAX_POINTS, 1),
        };
        Points::from_tile(&api::tile(&run, cells).await.ok()?)
    })
}
