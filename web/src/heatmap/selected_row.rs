//! The row of the selected rank, high enough to be read above a heatmap of many ranks.

use std::sync::Arc;

use leptos::prelude::*;
use viz::palette;
use viz::raster::heatmap;
use viz::span::Span;

use super::{MARGINS, Selection};
use crate::canvas::Margins;
use crate::canvas::Size;
use crate::live::Live;
use crate::pen::Pen;
use crate::range::Range;
use crate::route::RunId;
use crate::step_chart::{StepChart, StepCharts};
use crate::theme::Theme;
use crate::tiles::{Shown, Tiles, View};

const ROW_MARGINS: Margins = Margins { top: 2.0, bottom: 2.0, ..MARGINS };
const HEIGHT: f64 = 30.0;

/// The row. It shows the same steps on the same scale as the heatmap below it.
#[component]
pub fn SelectedRow(selection: Selection, ends: Memo<(f32, f32)>) -> impl IntoView {
    let (range, live) = (expect_context::<Range>(), expect_context::<Live>());
    let (charts, theme) = (expect_context::<StepCharts>(), expect_context::<Theme>());
    let tiles = Tiles::new(expect_context::<RunId>());
    let order = Memo::new(move |_| selection.rank.get().map(|rank| Arc::new(vec![rank])));
    let colors = palette::cividis_table();
    let draw = move |frame: &mut viz::raster::Frame<'_>, _| {
        live.drawn.track();
        let (steps_view, ranks_view) = (range.visible(), Span::new(0.0, 1.0));
        let reduce = selection.reduce.get();
        tiles.ensure(View {
            selection: Shown { measure: selection.measure.get(), reduce, order: order.get() },
            steps: steps_view,
            ranks: ranks_view,
            stored: range.stored(),
            all_ranks: 1,
            pixels: (frame.width() as f64, frame.height() as f64),
        });
        let map = heatmap::Heatmap {
            steps_view,
            ranks_view,
            covered: None,
            reduce,
            scale: ends.get(),
            colors: &colors,
            unknown: theme.inks().unknown,
        };
        tiles.draw(frame, &map);
    };
    let overlay = move |pen: &Pen, size: Size| charts.draw_crosshair(pen, size, range.visible());
    let label =
        move || selection.rank.get().map_or_else(String::new, |rank| format!("Rank {rank} over steps"));
    view! {
        <p class="axis-names" data-testid="selected-row">
            <span>{label}</span>
        </p>
        <StepChart
            label=Signal::derive(label)
            decorative=true
            testid="selected-row-chart"
            height=Signal::derive(|| HEIGHT)
            margins=ROW_MARGINS
            draw=Box::new(draw)
            overlay=Box::new(overlay)
        />
    }
}
