//! The whole step in miniature, with the axis of the visible part below. Both stay in view while the page scrolls.

use leptos::prelude::*;
use model::brush::Brush;
use model::pointer::Gesture;
use viz::raster::Frame;
use viz::raster::gantt::View;
use viz::span::Span;
use viz::ticks;

use super::StepSelection;
use super::zoom::{MARGINS, Zoom};
use crate::canvas::{Margins, Size};
use crate::pen::Pen;
use crate::plot::Plot;

const MAP_MARGINS: Margins = Margins { top: 2.0, bottom: 26.0, ..MARGINS };
const HEIGHT: f64 = 52.0;
/// The distance from which the pointer holds an end of the visible part, in pixels.
const REACH_PIXELS: f64 = 7.0;
/// The height of the lines that lead from the visible part to the axis.
const LENS_PIXELS: f64 = 8.0;

/// The miniature. Dragging in it chooses the visible part.
#[component]
pub fn Minimap(selection: StepSelection, zoom: Zoom) -> impl IntoView {
    let brush = StoredValue::new(Brush::default());
    let on_gesture = move |gesture: Gesture, size: Size| {
        let all = zoom.whole.get_untracked();
        match gesture {
            Gesture::Drag { from, to, .. } => {
                let ends = (all.to_value(from.0, size.width), all.to_value(to.0, size.width));
                let reach = REACH_PIXELS / size.width * all.len();
                let visible = zoom.time.get_untracked();
                zoom.time.set(brush.try_update_value(|brush| brush.drag(visible, ends, reach, all)));
            }
            Gesture::Drop => brush.update_value(Brush::release),
            Gesture::DoubleClick => zoom.time.set(None),
            _ => return false,
        }
        true
    };
    view! {
        <div class="sticky-axis">
            <Plot
                label="The whole step; W, S, A and D zoom and move"
                decorative=true
                testid="minimap"
                height=Signal::derive(|| HEIGHT)
                margins=MAP_MARGINS
                draw=Box::new(move |frame, _| draw(frame, selection, zoom))
                overlay=Box::new(move |pen, size| {
                    if selection.drawn.with(Option::is_some) {
                        overlay(pen, size, zoom);
                    }
                })
                on_gesture=Box::new(on_gesture)
            />
        </div>
    }
}

fn draw(frame: &mut Frame<'_>, selection: StepSelection, zoom: Zoom) {
    if let Some(drawn) = selection.drawn.get() {
        let rows = Span::new(0.0, drawn.gantt.rows() as f64);
        drawn.gantt.draw(frame, &drawn.waterfall, View { time: zoom.whole.get(), rows });
    }
}

fn overlay(pen: &Pen, size: Size, zoom: Zoom) {
    let (all, visible) = (zoom.whole.get(), zoom.view.get().time);
    let x = |value: f64| all.to_pixel(value, size.width);
    let (left, right) = (x(visible.start), x(visible.end));
    if zoom.time.with(Option::is_some) {
        for (from, to) in [(0.0, left), (right, size.width)] {
            let corners = [(from, 0.0), (to, 0.0), (to, size.height), (from, size.height)];
            pen.area(&corners, pen.inks.ground, 0.65);
        }
        for end in [left, right] {
            pen.rect(end - 1.0, 0.0, 2.0, size.height, pen.inks.accent);
        }
    }
    let below = size.height + LENS_PIXELS;
    pen.line((left, size.height), (0.0, below), pen.inks.grid, false);
    pen.line((right, size.height), (size.width, below), pen.inks.grid, false);
    // A phone has room for three.
    for tick in ticks::nanos(visible, ((size.width / 90.0) as usize).max(3)) {
        let x = visible.to_pixel(tick.value, size.width);
        if (0.0..=size.width).contains(&x) {
            pen.rect(x.round(), below, 1.0, 4.0, pen.inks.muted);
            pen.text_below(x, LENS_PIXELS + 11.0, &tick.label, pen.inks.muted);
        }
    }
}
