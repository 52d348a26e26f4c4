//! Charts as pixels, in plain Rust without a browser.
//!
//! Dense views are rasterized here, from typed columns into an RGBA buffer that a canvas accepts in one call. The same
//! code runs natively, so the content of charts is tested without a browser. The caller draws text, axes and the
//! crosshair. This crate only computes the positions of ticks and the format of figures.
//!
//! * [`steps`] stores the newest steps of a run, and [`measure`] formats the figures of its cells.
//! * [`span`] does zoom and pan, [`ticks`] axes, and [`palette`] colors.
//! * [`raster`] draws: [`raster::heatmap`], [`raster::area`], [`raster::line`], [`raster::gantt`].

#[cfg(test)]
mod fuzz;
pub mod measure;
pub mod palette;
pub mod raster;
pub mod span;
pub mod steps;
pub mod ticks;
pub mod tiles;
pub mod xy;
