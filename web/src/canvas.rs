//! A canvas: its size, the room around its raster, and its drawing context.

use wasm_bindgen::JsCast as _;
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement};

use crate::widgets::TooltipPlace;

/// The inner size of a plot in CSS pixels, and the number of device pixels per CSS pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// The width of the raster.
    pub width: f64,
    /// The height of the raster.
    pub height: f64,
    /// The browser's `devicePixelRatio`.
    pub ratio: f64,
}

/// The room for axes around the raster, in CSS pixels.
#[derive(Clone, Copy, Debug)]
pub struct Margins {
    /// The left margin, with the labels of the vertical axis.
    pub left: f64,
    /// The right margin.
    pub right: f64,
    /// The top margin.
    pub top: f64,
    /// The bottom margin, with the labels of the horizontal axis.
    pub bottom: f64,
}

impl Margins {
    /// Returns the place of a tooltip for the point (x, y) of the raster.
    pub fn place(self, x: f64, y: f64, size: Size) -> TooltipPlace {
        let (width, height) = (size.width + self.left + self.right, size.height + self.top + self.bottom);
        TooltipPlace { x: x + self.left, y: y + self.top, width, height }
    }
}

/// Returns the drawing context of a canvas.
pub fn context(canvas: &HtmlCanvasElement) -> Option<CanvasRenderingContext2d> {
    canvas.get_context("2d").ok().flatten()?.dyn_into().ok()
}
