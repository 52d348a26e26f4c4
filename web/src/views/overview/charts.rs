//! Charts over steps with a common range and crosshair: step ledger, step time, utilization and throughput.

mod utilization;

use leptos::prelude::*;
use units::decimal;
use viz::raster::{Frame, area, line};
use viz::span::Span;
use viz::steps::Steps;
use viz::{measure, palette, ticks};
use wire::live::Part;
use wire::views::Culprit;

use crate::canvas::{Margins, Size};
use crate::download;
use crate::live::Live;
use crate::pen::{Align, Pen};
use crate::plot::Stretch;
use crate::range::Range;
use crate::step_chart::{StepChart, StepCharts, draw_step_axis};
use crate::theme::Theme;
use crate::widgets::{Legend, Swatch};
use utilization::UtilizationChart;

const MARGINS: Margins = Margins { left: 64.0, right: 12.0, top: 8.0, bottom: 8.0 };
const WITH_STEPS: Margins = Margins { bottom: 24.0, ..MARGINS };

/// A column of [`Steps`] that is drawn as a line.
#[derive(Clone, Copy)]
struct Lined {
    title: &'static str,
    testid: &'static str,
    column: fn(&Steps) -> &[f32],
    color: palette::Rgba,
    ticks: fn(Span, usize) -> Vec<ticks::Tick>,
    write: fn(f64, &str) -> String,
    margins: Margins,
    height: f64,
}

const STEP_TIME: Lined = Lined {
    title: "Step time",
    testid: "chart-step-time",
    column: |steps| &steps.step_nanos,
    color: palette::part(Part::Backward),
    ticks: ticks::nanos,
    write: |value, _| units::nanos(value),
    margins: MARGINS,
    height: 116.0,
};

const THROUGHPUT: Lined = Lined {
    title: "Throughput",
    testid: "chart-throughput",
    column: |steps| &steps.throughput,
    color: palette::part(Part::Optimizer),
    ticks: ticks::rates,
    write: |value, unit| units::rate(value, &format!("{unit}/s")),
    margins: WITH_STEPS,
    height: 132.0,
};

#[component]
pub fn Charts() -> impl IntoView {
    let live = expect_context::<Live>();
    let theme = expect_context::<Theme>();
    let has_idle = live.has_idle();
    let save_csv = move |_| {
        live.steps.with_value(|steps| download::csv("steps.csv", &csv(steps, has_idle.get_untracked())));
    };
    let unit = Signal::derive(move || {
        live.run
            .with(|run| run.as_ref().map(|run| format!(" {}/s", run.report.sample_unit)).unwrap_or_default())
    });
    // Most of the cost of a late rank shows as the wait of the others.
    let waits = move || {
        let late = live.run.with(|run| run.as_ref()?.report.verdicts.first()?.culprit.clone());
        match late.as_ref().map(Culprit::ranks) {
            Some([rank]) => format!("; exposed wait includes the wait for rank {rank}"),
            _ => String::new(),
        }
    };
    // A job that does not count its samples has an unknown throughput, not one of zero.
    let counts_samples = Memo::new(move |_| {
        live.drawn.track();
        live.steps.with_value(|steps| {
            steps.throughput.is_empty() || steps.throughput.iter().any(|rate| !rate.is_nan())
        })
    });
    let lines = move || {
        if counts_samples.get() {
            view! {
                <LineChart lined=STEP_TIME />
                <UtilizationChart is_last=false />
                <h2 class="chart-title">"Throughput"<small>{unit}</small></h2>
                <LineChart lined=THROUGHPUT />
            }
            .into_any()
        } else {
            view! {
                <LineChart lined=STEP_TIME />
                <UtilizationChart is_last=true />
                <h2 class="chart-title">"Throughput"</h2>
                <p class="quiet" data-testid="no-throughput">"The job does not count its samples."</p>
            }
            .into_any()
        }
    };
    let legend = move || {
        let item = |part: Part| (palette::part(part), palette::Pattern::Solid, part.name());
        view! { <Legend items=Part::stacked(has_idle.get()).map(item).collect() /> }
    };
    let save_png = move |_| download::png("ledger.png", "chart-ledger", theme.inks().ground);
    view! {
        <section class="panel charts" aria-label="Over time">
            <div class="panel-head">
                <h2>"Step ledger"<small>" mean over ranks, per step"{waits}</small></h2>
                <span class="grow"></span>
                <span class="saves">
                    <button class="quiet" on:click=save_csv>"CSV"</button>
                    <button class="quiet" on:click=save_png>"PNG"</button>
                </span>
            </div>
            {legend}
            <Ledger />
            <h2 class="chart-title">"Step time"</h2>
            {lines}
        </section>
    }
}

/// Returns the value at the top of an axis. Two in a hundred steps may exceed it, and the chart then says so.
fn top(values: &[f32]) -> f64 {
    ticks::ceiling(f64::from(measure::exceeded_by(values, 2)) * 1.1)
}

/// Returns the value at the top of the axis of the ledger, and the largest sum of parts.
fn ledger_axis(steps: &Steps, visible: Span) -> (f64, f64) {
    let rows = steps.rows_in(visible);
    let sums: Vec<f32> = rows.map(|row| steps.parts.iter().map(|part| part[row]).sum::<f32>()).collect();
    let largest = sums.iter().copied().filter(|sum| sum.is_finite()).fold(0.0, f32::max);
    (top(&sums), largest.into())
}

#[component]
fn Ledger() -> impl IntoView {
    let live = expect_context::<Live>();
    let (range, charts) = (expect_context::<Range>(), expect_context::<StepCharts>());
    let stretch = expect_context::<Stretch>();
    let colors = Part::ALL.map(palette::part);
    let draw = move |frame: &mut Frame<'_>, _: Size| {
        let view = range.visible();
        live.steps.with_value(|steps| {
            let (top, _) = ledger_axis(steps, view);
            let parts = &steps.parts;
            area::draw(
                frame,
                &area::Area { step: &steps.step, parts, colors: &colors, view, top: top as f32 },
            );
        });
    };
    let overlay = move |pen: &Pen, size: Size| {
        let visible = range.visible();
        let (top, largest) = live.steps.with_value(|steps| ledger_axis(steps, visible));
        pen.axis_left(top, &ticks::nanos(Span::new(0.0, top), 5));
        write_excess(pen, size, top, largest, &units::nanos(largest));
        charts.draw_crosshair(pen, size, visible);
    };
    view! {
        <StepChart
            label="Step ledger over steps, stacked by part; the table below has one row per rank"
            testid="chart-ledger"
            height=Signal::derive(move || 216.0 * stretch.get())
            margins=MARGINS
            draw=Box::new(draw)
            overlay=Box::new(overlay)
            is_tip_tall=true
        >
            {move || ledger_tip(live, charts)}
        </StepChart>
    }
}

/// Describes the parts of the step under the crosshair.
fn ledger_tip(live: Live, charts: StepCharts) -> Option<AnyView> {
    live.drawn.track();
    let step = charts.crosshair.get().step?;
    let (total, parts) = live.steps.with_value(|steps| {
        let row = steps.row_of(step)?;
        Some((steps.step_nanos[row], steps.parts.each_ref().map(|part| part[row])))
    })?;
    let line = |part: Part| {
        let nanos = f64::from(parts[part as usize]);
        view! {
            <tr>
                <td><Swatch color=palette::part(part) />{part.name()}</td>
                <td>{units::nanos(nanos)}</td>
            </tr>
        }
    };
    let is_known = parts.iter().all(|nanos| !nanos.is_nan());
    let lines =
        is_known.then(|| Part::stacked(parts[Part::Idle as usize] > 0.0).rev().map(line).collect_view());
    Some(
        view! {
            <b>"Step "{units::count(step)}</b>
            <table>
                {lines}
                <tr class="sum"><td>"step time"</td><td>{units::nanos(f64::from(total))}</td></tr>
            </table>
            {(!is_known).then_some("not observed in full: only its length is known")}
        }
        .into_any(),
    )
}

#[component]
fn LineChart(lined: Lined) -> impl IntoView {
    let live = expect_context::<Live>();
    let (range, charts) = (expect_context::<Range>(), expect_context::<StepCharts>());
    let stretch = expect_context::<Stretch>();
    let unit = Signal::derive(move || {
        live.run
            .with(|run| run.as_ref().map_or_else(|| "samples".into(), |run| run.report.sample_unit.clone()))
    });
    let draw = move |frame: &mut Frame<'_>, size: Size| {
        let view = range.visible();
        live.steps.with_value(|steps| {
            let values = (lined.column)(steps);
            let top = top(&values[steps.rows_in(view)]) as f32;
            let thickness = 1.5 * size.ratio as f32;
            line::draw(
                frame,
                &line::Line { step: &steps.step, values, view, top, color: lined.color, thickness },
            );
        });
    };
    let overlay = move |pen: &Pen, size: Size| {
        let view = range.visible();
        let pointed = charts.crosshair.get().step;
        let (top, largest, value) = live.steps.with_value(|steps| {
            let values = (lined.column)(steps);
            let rows = steps.rows_in(view);
            let at = pointed.and_then(|step| steps.row_of(step)).map(|row| f64::from(values[row]));
            (top(&values[rows.clone()]), f64::from(line::largest(values, rows)), at)
        });
        pen.axis_left(top, &(lined.ticks)(Span::new(0.0, top), 4));
        if lined.margins.bottom > MARGINS.bottom {
            draw_step_axis(pen, size, view);
        }
        write_excess(pen, size, top, largest, &(lined.write)(largest, &unit.get()));
        charts.draw_crosshair(pen, size, view);
        if let (Some(step), Some(value)) = (pointed, value.filter(|value| value.is_finite())) {
            let x = view.to_pixel(step as f64 + 0.5, size.width);
            let y = size.height * (1.0 - value / top);
            pen.ring(x, y.max(0.0), 3.0, &palette::css(lined.color));
            pen.write_at_crosshair(x, 0.0, &(lined.write)(value, &unit.get()));
        }
    };
    view! {
        <StepChart
            label=format!("{} over steps", lined.title)
            testid=lined.testid
            height=Signal::derive(move || lined.height * stretch.get())
            margins=lined.margins
            draw=Box::new(draw)
            overlay=Box::new(overlay)
        />
    }
}

/// Writes the largest value, if values exceed the axis.
fn write_excess(pen: &Pen, size: Size, top: f64, largest: f64, text: &str) {
    if largest > top {
        let text = format!("▲ up to {text}");
        let width = pen.text_width(&text) + 8.0;
        pen.rect(size.width - width, 0.0, width, 16.0, pen.inks.ground);
        pen.text(size.width - 4.0, 8.0, &text, Align::End, pen.inks.muted);
    }
}

fn csv(steps: &Steps, has_idle: bool) -> String {
    let mut out = String::from("step,step_seconds,samples_per_second,overlap_ratio");
    for part in Part::stacked(has_idle) {
        out += &format!(",{}_seconds", part.name().replace(' ', "_"));
    }
    for row in 0..steps.step.len() {
        let number = |value: f32, scale: f64| {
            if value.is_nan() { String::new() } else { decimal(f64::from(value) * scale, 9) }
        };
        out += &format!(
            "\n{},{},{},{}",
            steps.step[row],
            number(steps.step_nanos[row], 1e-9),
            number(steps.throughput[row], 1.0),
            number(steps.overlap[row], 1.0)
        );
        for part in Part::stacked(has_idle) {
            out += ",";
            out += &number(steps.parts[part as usize][row], 1e-9);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;

    use super::*;
    use crate::fixture::{empty_report, show, show_steps};
    use crate::mounted::mount_in_run;

    #[wasm_bindgen_test]
    async fn a_job_that_does_not_count_its_samples_has_no_chart_of_throughput() {
        for (samples, has_chart) in [(0, false), (8, true)] {
            let (page, live) = mount_in_run(|| view! { <Charts /> });
            show(live, empty_report());
            show_steps(live, 3, samples);
            page.settle().await;
            assert_eq!(page.find("[data-testid=chart-throughput]").is_some(), has_chart);
            assert_eq!(page.find("[data-testid=no-throughput]").is_none(), has_chart);
        }
    }
}
