//! Text and lines above a raster: axes, crosshair, outlines.

use leptos::prelude::*;
use viz::span::Span;
use viz::ticks::Tick;
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement};

use crate::canvas::{Margins, Size, context};
use crate::theme::{Inks, Theme};

const FONT: &str = "11px ui-sans-serif, system-ui, sans-serif";

/// Draws in CSS pixels from the raster's upper left corner.
pub struct Pen {
    context: CanvasRenderingContext2d,
    size: Size,
    margins: Margins,
    /// The colours in force.
    pub inks: Inks,
}

/// Where a text lies relative to its point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Align {
    /// It begins there.
    Start,
    /// It is centred there.
    Middle,
    /// It ends there.
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

    /// Puts the origin and the clip back.
    pub fn end(&self) {
        self.context.restore();
    }

    /// A horizontal axis below the raster: marks and their texts.
    pub fn axis_below(&self, view: Span, ticks: &[Tick], centred: bool) {
        let offset = if centred { 0.5 } else { 0.0 };
        for tick in ticks {
            let x = view.to_pixel(tick.value + offset, self.size.width);
            if (0.0..=self.size.width).contains(&x) {
                self.rect(x.round(), self.size.height, 1.0, 4.0, self.inks.grid);
                self.text(x, self.size.height + 12.0, &tick.label, Align::Middle, self.inks.muted);
            }
        }
    }

    /// A vertical axis from 0 at the bottom, with grid lines.
    pub fn axis_left(&self, top: f64, ticks: &[Tick]) {
        for tick in ticks {
            let y = self.size.height * (1.0 - tick.value / top);
            self.rect(0.0, y.round(), self.size.width, 1.0, self.inks.grid);
            self.text(-8.0, y, &tick.label, Align::End, self.inks.muted);
        }
    }

    /// Names rows on the left, as many as there is room for, and the chosen one in any case.
    pub fn rows_left(&self, view: Span, chosen: Option<usize>, names: impl Fn(usize) -> String) {
        let pixels = self.size.height / view.len();
        let every = (14.0 / pixels).ceil().max(1.0);
        let every = viz::ticks::spacing(every, 1).max(1.0) as usize;
        let first = view.start.max(0.0).floor() as usize;
        for row in first..view.end.ceil() as usize {
            let is_chosen = chosen == Some(row);
            let crowded = chosen.is_some_and(|chosen| chosen.abs_diff(row) < every);
            if !is_chosen && (row % every != 0 || crowded) {
                continue;
            }
            let y = view.to_pixel(row as f64 + 0.5, self.size.height);
            if (0.0..=self.size.height).contains(&y) {
                let colour = if is_chosen { self.inks.accent } else { self.inks.muted };
                self.text(-8.0, y, &names(row), Align::End, colour);
                if is_chosen {
                    self.rect(-4.0, y - 6.0, 2.0, 12.0, colour);
                }
            }
        }
    }

    /// The vertical line of the shared crosshair.
    pub fn crosshair(&self, x: f64) {
        if (0.0..=self.size.width).contains(&x) {
            self.rect(x.round(), 0.0, 1.0, self.size.height, self.inks.muted);
        }
    }

    /// A filled rectangle.
    pub fn rect(&self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        self.context.set_fill_style_str(colour);
        self.context.fill_rect(x, y, width, height);
    }

    /// The outline of what is selected: dark inside light, so that it shows on every colour.
    pub fn outline(&self, x: f64, y: f64, width: f64, height: f64) {
        for (grow, thick, colour) in [(2.0, 3.5, self.inks.ground), (2.0, 1.5, self.inks.ink)] {
            self.context.set_stroke_style_str(colour);
            self.context.set_line_width(thick);
            self.context.stroke_rect(x - grow, y - grow, width + 2.0 * grow, height + 2.0 * grow);
        }
    }

    /// A line, dashed or not.
    pub fn line(&self, from: (f64, f64), to: (f64, f64), colour: &str, dashed: bool) {
        self.lines(&[from, to], colour, dashed);
    }

    /// A line through points.
    pub fn lines(&self, points: &[(f64, f64)], colour: &str, dashed: bool) {
        if dashed {
            let dashes = js_sys::Array::of2(&4.0.into(), &3.0.into());
            let _ = self.context.set_line_dash(&dashes);
        }
        self.context.set_stroke_style_str(colour);
        self.context.set_line_width(1.5);
        self.context.begin_path();
        points.iter().for_each(|&(x, y)| self.context.line_to(x, y));
        self.context.stroke();
        let _ = self.context.set_line_dash(&js_sys::Array::new());
    }

    /// What lies inside the corners, in part of the colour.
    pub fn area(&self, corners: &[(f64, f64)], colour: &str, share: f64) {
        self.context.begin_path();
        for &(x, y) in corners {
            self.context.line_to(x, y);
        }
        self.context.set_global_alpha(share);
        self.context.set_fill_style_str(colour);
        self.context.fill();
        self.context.set_global_alpha(1.0);
    }

    /// A point.
    pub fn dot(&self, x: f64, y: f64, radius: f64, colour: &str, hollow: bool) {
        if hollow {
            self.ring(x, y, radius - 0.75, colour);
            return;
        }
        self.context.begin_path();
        if self.context.arc(x, y, radius, 0.0, std::f64::consts::TAU).is_ok() {
            self.context.set_fill_style_str(colour);
            self.context.fill();
        }
    }

    /// A ring around a point.
    pub fn ring(&self, x: f64, y: f64, radius: f64, colour: &str) {
        self.context.begin_path();
        if self.context.arc(x, y, radius, 0.0, std::f64::consts::TAU).is_ok() {
            self.context.set_fill_style_str(self.inks.ground);
            self.context.fill();
            self.context.set_stroke_style_str(colour);
            self.context.set_line_width(1.5);
            self.context.stroke();
        }
    }

    /// A text.
    pub fn text(&self, x: f64, y: f64, text: &str, align: Align, colour: &str) {
        self.context.set_text_align(match align {
            Align::Start => "left",
            Align::Middle => "center",
            Align::End => "right",
        });
        self.context.set_fill_style_str(colour);
        let _ = self.context.fill_text(text, x, y);
    }

    /// Draws only inside the raster from here on.
    pub fn clip(&self) {
        self.context.begin_path();
        self.context.rect(0.0, -self.margins.top, self.size.width, self.size.height + self.margins.top);
        self.context.clip();
    }

    /// How wide a text would be.
    pub fn text_width(&self, text: &str) -> f64 {
        self.context.measure_text(text).map_or(0.0, |metrics| metrics.width())
    }
}
