//! One rank's measures as lines, below each other with its step time and the steps of the verdicts on it.

use std::sync::Arc;

use leptos::prelude::*;
use model::points::Points;
use model::utilization::Measures;
use units::capitalized;
use viz::measure::write;
use viz::raster::{Frame, line};
use viz::span::Span;
use viz::ticks::{self, Tick};
use wire::live::tile::{Measure, Reduce};
use wire::usage::UsageUnit;
use wire::views::{Culprit, RecentUsage};

use crate::canvas::{Margins, Size};
use crate::live::Live;
use crate::pen::Pen;
use crate::range::Range;
use crate::route::RunId;
use crate::step_chart::{StepChart, StepCharts};
use crate::theme::Theme;
use crate::tiles::{Shown, Tiles, View};
use crate::with_steps::WithSteps;

/// As wide as those of the strips, so that steps are below each other.
const MARGINS: Margins = Margins { left: 64.0, right: 16.0, top: 6.0, bottom: 4.0 };
/// The height of a line, in pixels.
const HEIGHT: f64 = 52.0;
/// The height of the bar that shows the steps of a verdict, in pixels.
const BAR: f64 = 3.0;

/// The lines of the selected rank.
#[component]
pub fn RankLines(rank: Memo<Option<u32>>, usage: Memo<Vec<RecentUsage>>) -> impl IntoView {
    let measures = Memo::new(move |_| {
        let mut measures = vec![Measure::StepTime];
        measures.extend(usage.with(|usage| Measures::new(usage).main).into_iter().map(Measure::Usage));
        measures
    });
    let blamed = blamed(rank);
    let title = move || rank.get().map(|rank| format!("Rank {rank}"));
    let note = move || {
        if blamed.with(Vec::is_empty) {
            " over steps"
        } else {
            " over steps; the bar marks the steps of a verdict"
        }
    };
    let content = move || {
        view! {
            <section class="panel" aria-label="One rank over steps" data-testid="rank-lines">
                <div class="panel-head"><h2>{title}<small>{note}</small></h2></div>
                <For each=move || measures.get() key=|measure| measure.key() let(measure)>
                    <RankLine measure=measure rank=rank blamed=blamed />
                </For>
            </section>
        }
    };
    view! {
        <Show when=move || rank.get().is_some()>
            <WithSteps>{content()}</WithSteps>
        </Show>
    }
}

/// Returns the steps, both ends included, of the verdicts on a rank.
fn blamed(rank: Memo<Option<u32>>) -> Memo<Vec<(u64, u64)>> {
    let live = expect_context::<Live>();
    Memo::new(move |_| {
        let Some(rank) = rank.get() else { return Vec::new() };
        live.run.with(|run| {
            let verdicts = run.iter().flat_map(|run| &run.report.verdicts);
            let on_rank = verdicts.filter(|verdict| {
                verdict.culprit.as_ref().map(Culprit::ranks).is_some_and(|ranks| ranks.contains(&rank))
            });
            on_rank.map(|verdict| verdict.steps).collect()
        })
    })
}

/// Formats a value, apart from its unit.
fn number_and_unit(measure: Measure, value: f64) -> (String, String) {
    let text = write(measure, value as f32);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    (number.to_owned(), unit.to_owned())
}

#[component]
fn RankLine(measure: Measure, rank: Memo<Option<u32>>, blamed: Memo<Vec<(u64, u64)>>) -> impl IntoView {
    let (live, range) = (expect_context::<Live>(), expect_context::<Range>());
    let (charts, theme) = (expect_context::<StepCharts>(), expect_context::<Theme>());
    let tiles = Tiles::new(expect_context::<RunId>());
    let order = Memo::new(move |_| rank.get().map(|rank| Arc::new(vec![rank])));
    let is_count = matches!(measure, Measure::Usage(usage) if usage.unit() == UsageUnit::Count);
    let reduce = if is_count { Reduce::Max } else { Reduce::Mean };
    let points = Memo::new(move |_| tiles.with(|tile| tile.and_then(|(tile, _)| Points::from_tile(tile))));
    // A share has the same axis on all ranks. Other measures begin at 0 as well, so that a small change stays small.
    let top = move || match measure {
        Measure::Usage(usage) if usage.unit() == UsageUnit::Share => 1.0,
        _ => {
            let view = range.visible();
            let largest = points.with(|points| points.as_ref()?.largest(view.start, view.end));
            ticks::ceiling(f64::from(largest.unwrap_or(0.0)) * 1.05)
        }
    };
    let draw = move |frame: &mut Frame<'_>, size: Size| {
        live.drawn.track();
        let view = range.visible();
        tiles.ensure(View {
            selection: Shown { measure, reduce, order: order.get() },
            steps: view,
            ranks: Span::new(0.0, 1.0),
            stored: range.stored(),
            all_ranks: 1,
            pixels: (frame.width() as f64, 1.0),
        });
        let (top, color, thickness) = (top() as f32, theme.inks().line, 1.5 * size.ratio as f32);
        points.with(|points| {
            if let Some(Points { step, values }) = points {
                line::draw(frame, &line::Line { step, values, view, top, color, thickness });
            }
        });
    };
    let overlay = move |pen: &Pen, size: Size| {
        let (view, top) = (range.visible(), top());
        let highest = number_and_unit(measure, top).0;
        pen.axis_left(top, &[(0.0, "0".into()), (top, highest)].map(|(value, label)| Tick { value, label }));
        blamed.with(|blamed| {
            for (first, last) in blamed {
                let [from, to] = [*first as f64, *last as f64 + 1.0]
                    .map(|step| view.to_pixel(step, size.width).clamp(0.0, size.width));
                pen.rect(from, 0.0, to - from, BAR, pen.inks.alarm);
            }
        });
        charts.draw_crosshair(pen, size, view);
        let Some(step) = charts.crosshair.get().step else { return };
        let x = view.to_pixel(step as f64 + 0.5, size.width);
        if let Some(value) = points.with(|points| points.as_ref()?.value_at(step)) {
            pen.write_at_crosshair(x, 6.0, &write(measure, value));
        }
    };
    let name = capitalized(measure.name());
    view! {
        <section data-testid=format!("line-{}", measure.key())>
            <h3 class="chart-title">{name.clone()}<small>{move || format!(" {}", number_and_unit(measure, top()).1)}</small></h3>
            <StepChart
                label=format!("{name} of the selected rank over steps")
                decorative=true
                testid="rank-line"
                height=Signal::derive(|| HEIGHT)
                margins=MARGINS
                draw=Box::new(draw)
                overlay=Box::new(overlay)
            />
        </section>
    }
    .into_any()
}
