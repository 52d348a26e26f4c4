//! Text and lines above a raster: axes, crosshair, outlines.

use leptos::prelude::*;
use viz::span::Span;
use viz::ticks::Tick;
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement};

use crate::canvas::{Margins, Size, context};
use crate::theme::{Inks, Theme};

const FONT: &str = "11px ui-sans-serif, system-ui, sans-serif";

/// A pen that draws in CSS pixels from the raster's upper left corner.
pub struct Pen {
    context: CanvasRenderingContext2d,
    size: Size,
    margins: Margins,
    /// The current colors.
    pub inks: Inks,
}

/// The alignment of a text to its point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Align {
    /// The text begins at the point.
    Start,
    /// The text is centered on the point.
    Middle,
    /// The text ends at the point.
    End,
}

impl Pen {
    /// Clears the canvas and moves the origin to the raster's corner.
    pub fn begin(canvas: &HtmlCanvasElement, size: Size, margins: Margins) -> Option<Self> {
        let width = (size.width + margins.left + margins.right) * size.ratio;
        let height = (size.height + margins.top + margins.bottom) * size.ratio;
        let (width, height) = (width.round() as u32, height.round() as u32);
        if canvas.width() != width || canvas.height() != height {
            canvas.set_width(width);
            canvas.set_height(height);
        }
        let context = context(canvas)?;
        let (dx, dy) = (margins.left * size.ratio, margins.top * size.ratio);
        context.save();
        context.clear_rect(0.0, 0.0, f64::from(width), f64::from(height));
        context.set_transform(size.ratio, 0.0, 0.0, size.ratio, dx, dy).ok()?;
        context.set_font(FONT);
        context.set_text_baseline("middle");
        let inks = use_context::<Theme>()?.inks();
        Some(Self { context, size, margins, inks })
    }

    /// Restores the origin and the clip.
    pub fn end(&self) {
        self.context.restore();
    }

    /// Draws the axis of steps below the raster: a mark and a label in the middle of each of these steps.
    pub fn step_axis(&self, shown: Span, ticks: &[Tick]) {
        for tick in ticks {
            let x = shown.to_pixel(tick.value + 0.5, self.size.width);
            if (0.0..=self.size.width).contains(&x) {
                self.rect(x.round(), self.size.height, 1.0, 4.0, self.inks.grid);
                self.text_below(x, 12.0, &tick.label, self.inks.muted);
            }
        }
    }

    /// Writes the label of a tick below the chart, moved away from the edge of the canvas where it would be cut off.
    pub fn text_below(&self, x: f64, y: f64, label: &str, color: &str) {
        let half = self.text_width(label) / 2.0;
        let (first, last) = (half - self.margins.left, self.size.width + self.margins.right - half);
        self.text(x.min(last).max(first), self.size.height + y, label, Align::Middle, color);
    }

    /// Draws a vertical axis from 0 at the bottom, with grid lines.
    pub fn axis_left(&self, top: f64, ticks: &[Tick]) {
        for tick in ticks {
            let y = self.size.height * (1.0 - tick.value / top);
            self.rect(0.0, y.round(), self.size.width, 1.0, self.inks.grid);
            self.text(-8.0, y, &tick.label, Align::End, self.inks.muted);
        }
    }

    /// Labels rows on the left: as many as there is room for, and always the selected one.
    pub fn rows_left(&self, view: Span, chosen: Option<usize>, names: impl Fn(usize) -> String) {
        let pixels = self.size.height / view.len();
        let fitting = (14.0 / pixels).ceil().max(1.0);
        let spacing = viz::ticks::spacing(fitting, 1).max(1.0) as usize;
        let first = view.start.max(0.0).floor() as usize;
        for row in first..view.end.ceil() as usize {
            let is_chosen = chosen == Some(row);
            let crowded = chosen.is_some_and(|chosen| chosen.abs_diff(row) < spacing);
            if !is_chosen && (row % spacing != 0 || crowded) {
                continue;
            }
            let y = view.to_pixel(row as f64 + 0.5, self.size.height);
            if (0.0..=self.size.height).contains(&y) {
                let color = if is_chosen { self.inks.accent } else { self.inks.muted };
                self.text(-8.0, y, &names(row), Align::End, color);
                if is_chosen {
                    self.rect(-4.0, y - 6.0, 2.0, 12.0, color);
                }
            }
        }
    }

    /// Draws the vertical line of the shared crosshair.
    pub fn crosshair(&self, x: f64) {
        if (0.0..=self.size.width).contains(&x) {
            self.rect(x.round(), 0.0, 1.0, self.size.height, self.inks.muted);
        }
    }

    /// Writes a value beside the crosshair at `x`, on the side where there is room. `top` is the upper edge of the text.
    pub fn write_at_crosshair(&self, x: f64, top: f64, text: &str) {
        let is_right = x > self.size.width / 2.0;
        let (at, align) = if is_right { (x - 8.0, Align::End) } else { (x + 8.0, Align::Start) };
        let width = self.text_width(text) + 8.0;
        let left = if is_right { at - width + 4.0 } else { at - 4.0 };
        self.rect(left, top, width, 16.0, self.inks.ground);
        self.text(at, top + 8.0, text, align, self.inks.ink);
    }

    /// Draws a filled rectangle.
    pub fn rect(&self, x: f64, y: f64, width: f64, height: f64, color: &str) {
        self.context.set_fill_style_str(color);
        self.context.fill_rect(x, y, width, height);
    }

    /// Draws the outline of a selection. It is dark inside light, so that it shows on every color.
    pub fn outline(&self, x: f64, y: f64, width: f64, height: f64) {
        for (grow, thick, color) in [(2.0, 3.5, self.inks.ground), (2.0, 1.5, self.inks.ink)] {
            self.context.set_stroke_style_str(color);
            self.context.set_line_width(thick);
            self.context.stroke_rect(x - grow, y - grow, width + 2.0 * grow, height + 2.0 * grow);
        }
    }

    /// Draws a line, dashed or solid.
    pub fn line(&self, from: (f64, f64), to: (f64, f64), color: &str, dashed: bool) {
        self.lines(&[from, to], color, dashed);
    }

    /// Draws a line through points.
    pub fn lines(&self, points: &[(f64, f64)], color: &str, dashed: bool) {
        if dashed {
            let dashes = js_sys::Array::of2(&4.0.into(), &3.0.into());
            let _ = self.context.set_line_dash(&dashes);
        }
        self.context.set_stroke_style_str(color);
        self.context.set_line_width(1.5);
        self.context.begin_path();
        points.iter().for_each(|&(x, y)| self.context.line_to(x, y));
        self.context.stroke();
        let _ = self.context.set_line_dash(&js_sys::Array::new());
    }

    /// Fills the area between the corners with a share of the color.
    pub fn area(&self, corners: &[(f64, f64)], color: &str, share: f64) {
        self.context.begin_path();
        for &(x, y) in corners {
            self.context.line_to(x, y);
        }
        self.context.set_global_alpha(share);
        self.context.set_fill_style_str(color);
        self.context.fill();
        self.context.set_global_alpha(1.0);
    }

    /// Draws a point.
    pub fn dot(&self, x: f64, y: f64, radius: f64, color: &str, hollow: bool) {
        if hollow {
            self.ring(x, y, radius - 0.75, color);
            return;
        }
        self.context.begin_path();
        if self.context.arc(x, y, radius, 0.0, std::f64::consts::TAU).is_ok() {
            self.context.set_fill_style_str(color);
            self.context.fill();
        }
    }

    /// Draws a ring around a point.
    pub fn ring(&self, x: f64, y: f64, radius: f64, color: &str) {
        self.context.begin_path();
        if self.context.arc(x, y, radius, 0.0, std::f64::consts::TAU).is_ok() {
            self.context.set_fill_style_str(self.inks.ground);
            self.context.fill();
            self.context.set_stroke_style_str(color);
            self.context.set_line_width(1.5);
            self.context.stroke();
        }
    }

    /// Draws a text.
    pub fn text(&self, x: f64, y: f64, text: &str, align: Align, color: &str) {
        self.context.set_text_align(match align {
            Align::Start => "left",
            Align::Middle => "center",
            Align::End => "right",
        });
        self.context.set_fill_style_str(color);
        let _ = self.context.fill_text(text, x, y);
    }

    /// Restricts drawing to the raster from now on.
    pub fn clip(&self) {
        self.context.begin_path();
        self.context.rect(0.0, -self.margins.top, self.size.width, self.size.height + self.margins.top);
        self.context.clip();
    }

    pub fn text_width(&self, text: &str) -> f64 {
        self.context.measure_text(text).map_or(0.0, |metrics| metrics.width())
    }
}
