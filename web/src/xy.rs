//! A chart of points, lines, bands and bars over any two axes. A view describes its chart as a [`Picture`]. This module
//! draws it and handles the pointer and keys.

use std::sync::Arc;

use leptos::prelude::*;
use model::pointer::Gesture;
use viz::palette::{self, Rgba};
use viz::ticks::Tick;
use viz::xy::Axis;

use crate::canvas::{Margins, Size};
use crate::pen::{Align, Pen};
use crate::plot::{Plot, Stretch};
use crate::step_chart::{Extent, StepCharts, StepInput};
use crate::theme::Inks;
use crate::widgets::{Tip, TooltipPlace};

const MARGINS: Margins = Margins { left: 64.0, right: 16.0, top: 14.0, bottom: 26.0 };
/// The smallest distance between two labels of the horizontal axis, in pixels.
const LABEL_GAP_PIXELS: f64 = 6.0;
/// The distance from which the pointer hits a point, in pixels.
const REACH_PIXELS: f64 = 28.0;

/// A color: one of the theme's, or one that data have in every view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ink {
    /// Measured values.
    Strong,
    /// The selection.
    Accent,
    /// What a verdict explains.
    Alarm,
    /// Values computed from measurements.
    Muted,
    /// The color of a part of a step.
    Data(Rgba),
}

impl Ink {
    /// Returns the CSS color in a theme.
    pub fn css(self, inks: &Inks) -> String {
        match self {
            Self::Strong => inks.ink.into(),
            Self::Accent => inks.accent.into(),
            Self::Alarm => inks.alarm.into(),
            Self::Muted => inks.muted.into(),
            Self::Data(color) => palette::css(color),
        }
    }
}

/// An element of a chart.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A line through points.
    Line { points: Vec<(f64, f64)>, ink: Ink, dashed: bool },
    /// The area between two lines: x, low, high.
    Band { points: Vec<(f64, f64, f64)>, ink: Ink },
    /// Points, filled or hollow.
    Dots { points: Vec<(f64, f64)>, ink: Ink, hollow: bool },
    /// Bars from the bottom: from x, to x, height.
    Bars { bars: Vec<(f64, f64, f64)>, ink: Ink },
    /// A vertical line with a text.
    Rule { x: f64, text: String },
    /// A short name on a line.
    Tag { at: (f64, f64), text: String, ink: Ink },
}

/// A point with a tooltip.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The position of the point.
    pub at: (f64, f64),
    /// The lines of the tooltip. The first one is bold.
    pub says: Vec<String>,
}

/// The content of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The ticks of the horizontal axis.
    pub x_ticks: Vec<Tick>,
    /// The ticks of the vertical axis.
    pub y_ticks: Vec<Tick>,
    /// The elements, in drawing order.
    pub marks: Vec<Mark>,
    /// The points with tooltips, left to right.
    pub hits: Vec<Hit>,
}

/// The content of a chart, or the reason why there is none.
pub type Shown = Result<Arc<Picture>, String>;

/// A chart over two axes.
#[component]
pub fn Xy(
    /// The name of the chart for screen readers.
    #[prop(into)]
    label: Signal<String>,
    testid: &'static str,
    height: f64,
    /// The names of the axes, horizontal and vertical.
    axes: (&'static str, &'static str),
    #[prop(into)] picture: Signal<Shown>,
    /// True if the horizontal axis is the steps of the run, which makes it a chart over steps like the others.
    #[prop(optional)]
    is_over_steps: bool,
) -> impl IntoView {
    let stretch = expect_context::<Stretch>();
    let steps = is_over_steps.then(|| StepInput::new(Extent::Visible, None));
    let charts = is_over_steps.then(expect_context::<StepCharts>);
    let near = RwSignal::new(None::<usize>);
    let place = RwSignal::new(None::<TooltipPlace>);
    let overlay = move |pen: &Pen, size: Size| {
        let Ok(picture) = picture.get() else { return };
        draw(pen, size, &picture, near.get());
        if let Some(charts) = charts.filter(|_| near.get().is_none()) {
            charts.draw_crosshair(pen, size, picture.x.span);
        }
    };
    let on_gesture = move |gesture: Gesture, size: Size| {
        let Ok(picture) = picture.get_untracked() else { return false };
        let (gesture, aim) = aimed(&picture, size, gesture, near.get_untracked());
        let hit = aim.map(|at| &picture.hits[at]);
        let is_move = matches!(gesture, Gesture::Hover(_) | Gesture::Leave);
        if is_move {
            near.set(aim);
            place.set(hit.map(|hit| {
                let (x, y) = point(&picture, size, hit.at);
                MARGINS.place(x, y, size)
            }));
        }
        let step = hit.map(|hit| hit.at.0.max(0.0) as u64);
        steps.is_some_and(|steps| steps.take(&gesture, size, picture.x.span, step)) || is_move
    };
    let why = Signal::derive(move || picture.get().err().unwrap_or_default());
    let nothing = Signal::derive(move || picture.get().is_err());
    let (across, up) = axes;
    view! {
        <p class="quiet" class:hidden=move || !nothing.get()>{why}</p>
        <div class:hidden=nothing>
        <p class="axis-names" aria-hidden="true">
            <span>{up}" ↑"</span>
            <span>{across}" →"</span>
        </p>
        <Plot label=label testid=testid height=Signal::derive(move || height * stretch.get()) margins=MARGINS
            draw=Box::new(|_, _| ()) overlay=Box::new(overlay) on_gesture=Box::new(on_gesture)>
            <Tip place=place>{move || tip(picture.get().ok()?.as_ref(), near.get()?)}</Tip>
        </Plot>
        </div>
    }
    .into_any()
}

fn point(picture: &Picture, size: Size, (x, y): (f64, f64)) -> (f64, f64) {
    (picture.x.to_pixel(x, size.width), size.height - picture.y.to_pixel(y, size.height))
}

fn nearest(picture: &Picture, size: Size, (x, y): (f64, f64)) -> Option<usize> {
    let distance = |hit: &Hit| {
        let (hit_x, hit_y) = point(picture, size, hit.at);
        // Horizontal distance counts more than vertical distance.
        (hit_x - x).hypot((hit_y - y) / 4.0)
    };
    let found = picture.hits.iter().enumerate().min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)))?;
    (distance(found.1) <= REACH_PIXELS).then_some(found.0)
}

/// Returns a gesture with the point that it is about. An arrow key moves to the point beside `near`, as the pointer would.
fn aimed(picture: &Picture, size: Size, gesture: Gesture, near: Option<usize>) -> (Gesture, Option<usize>) {
    match gesture {
        Gesture::Hover(at) | Gesture::Click(at) => (gesture, nearest(picture, size, at)),
        Gesture::Key(ref key) => match next_hit(picture, near, key) {
            Some(next) => (Gesture::Hover(point(picture, size, picture.hits[next].at)), Some(next)),
            None => (gesture, None),
        },
        _ => (gesture, None),
    }
}

fn tip(picture: &Picture, near: usize) -> Option<AnyView> {
    let mut lines = picture.hits.get(near)?.says.iter().cloned();
    let first = lines.next();
    let rest: Vec<_> = lines.map(|line| view! { <div>{line}</div> }).collect();
    Some(view! { <b>{first}</b>{rest} }.into_any())
}

fn next_hit(picture: &Picture, near: Option<usize>, key: &str) -> Option<usize> {
    let last = picture.hits.len().checked_sub(1)?;
    match key {
        "ArrowRight" => Some(near.map_or(0, |at| (at + 1).min(last))),
        "ArrowLeft" => Some(near.map_or(last, |at| at.saturating_sub(1))),
        _ => None,
    }
}

fn draw(pen: &Pen, size: Size, picture: &Picture, near: Option<usize>) {
    let at = |x: f64, y: f64| point(picture, size, (x, y));
    for tick in &picture.y_ticks {
        let (_, y) = at(picture.x.span.start, tick.value);
        pen.rect(0.0, y.round(), size.width, 1.0, pen.inks.grid);
        pen.text(-8.0, y, &tick.label, Align::End, pen.inks.muted);
    }
    let mut free = f64::NEG_INFINITY;
    for tick in &picture.x_ticks {
        let (x, _) = at(tick.value, picture.y.span.start);
        pen.rect(x.round(), size.height, 1.0, 4.0, pen.inks.grid);
        let half = pen.text_width(&tick.label) / 2.0;
        // On a narrow screen, a label that would touch the one before it is left out.
        if x - half >= free {
            pen.text_below(x, 14.0, &tick.label, pen.inks.muted);
            free = x + half + LABEL_GAP_PIXELS;
        }
    }
    for mark in &picture.marks {
        match mark {
            Mark::Band { points, ink } => {
                let low = points.iter().map(|&(x, low, _)| at(x, low));
                let high = points.iter().rev().map(|&(x, _, high)| at(x, high));
                pen.area(&low.chain(high).collect::<Vec<_>>(), &ink.css(&pen.inks), 0.16);
            }
            Mark::Line { points, ink, dashed } => {
                let points: Vec<_> = points.iter().map(|&(x, y)| at(x, y)).collect();
                pen.lines(&points, &ink.css(&pen.inks), *dashed);
            }
            Mark::Dots { points, ink, hollow } => {
                for &(x, y) in points {
                    let (x, y) = at(x, y);
                    pen.dot(x, y, 4.5, &ink.css(&pen.inks), *hollow);
                }
            }
            Mark::Bars { bars, ink } => bars.iter().for_each(|&(from, to, height)| {
                let ((left, top), (right, bottom)) = (at(from, height), at(to, picture.y.span.start));
                let corners = [(left, bottom), (left, top), (right - 1.0, top), (right - 1.0, bottom)];
                pen.area(&corners, &ink.css(&pen.inks), 0.62);
            }),
            Mark::Tag { at: point, text, ink } => {
                let (x, y) = at(point.0, point.1);
                let (wide, high) = (pen.text_width(text) + 8.0, 16.0);
                pen.rect(x - wide / 2.0, y - high / 2.0, wide, high, pen.inks.ground);
                pen.lines(&box_around(x, y, wide, high), &ink.css(&pen.inks), false);
                pen.text(x, y, text, Align::Middle, pen.inks.ink);
            }
            Mark::Rule { x, text } => {
                let (x, _) = at(*x, picture.y.span.start);
                pen.line((x, 0.0), (x, size.height), pen.inks.muted, true);
                let align = if x > size.width / 2.0 { Align::End } else { Align::Start };
                pen.text(
                    if align == Align::End { x - 5.0 } else { x + 5.0 },
                    -5.0,
                    text,
                    align,
                    pen.inks.muted,
                );
            }
        }
    }
    if let Some(hit) = near.and_then(|near| picture.hits.get(near)) {
        let (x, y) = at(hit.at.0, hit.at.1);
        pen.crosshair(x);
        pen.ring(x, y, 6.0, pen.inks.ink);
    }
}

/// Returns the corners of a box around a point, and the first of them again.
fn box_around(x: f64, y: f64, wide: f64, high: f64) -> [(f64, f64); 5] {
    let (left, right, up, down) = (x - wide / 2.0, x + wide / 2.0, y - high / 2.0, y + high / 2.0);
    [(left, up), (right, up), (right, down), (left, down), (left, up)]
}
