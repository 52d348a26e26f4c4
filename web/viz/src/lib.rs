//! Charts as pixels: plain Rust, no web.
//!
//! Dense views are rasterised here, from typed columns into an RGBA buffer that a canvas takes in one call.
//! The same code runs natively, so what a chart shows is tested without a browser. Text, axes and the
//! crosshair are the caller's; this crate only says where ticks go and how a figure is written.
//!
//! * [`steps`] keeps the newest steps of a run, and [`measure`] says which of their columns is looked at.
//! * [`span`] is zoom and pan; [`ticks`] are axes; [`palette`] is colour.
//! * [`order`](mod@order) and [`within`](mod@within) do what the library does, in less of the download.
//! * [`raster`] draws: [`raster::heatmap`], [`raster::area`], [`raster::line`], [`raster::gantt`].

#[cfg(test)]
mod fuzz;
pub mod measure;
pub mod order;
pub mod palette;
pub mod raster;
pub mod span;
pub mod steps;
pub mod ticks;
pub mod tiles;
pub mod within;
pub mod xy;
