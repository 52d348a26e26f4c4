//! The dashboard: a thin shell over [`viz`], which draws, and [`wire`], which defines the data.
//!
//! * [`route`] holds the address, [`live`] the data, and [`range`] the visible steps. Each is a set of signals, and
//!   every view is a function of them.
//! * [`canvas`] and [`pen`] put rasters and axes on the page. Text, tables and controls are plain elements.
//! * The dashboard has no access to the server's clock, stores only the theme, and sends requests only to its own
//!   origin.

mod api;
mod canvas;
mod cells;
mod download;
mod html;
mod keys;
mod live;
mod pages;
mod pen;
mod range;
mod route;
mod shell;
mod socket;
mod table;
mod theme;
mod tiles;
mod widgets;
mod xy;

use leptos::prelude::*;
use wasm_bindgen::prelude::*;

/// Starts the dashboard.
#[wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
    mount_to_body(shell::App);
}
