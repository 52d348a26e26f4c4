//! The browser client: a thin shell over [`viz`], which draws, and [`wire`], which says what came.
//!
//! * [`route`] is where one is, [`live`] what is known, [`range`] which steps are looked at: three sets of
//!   signals, and every view is a function of them.
//! * [`canvas`] and [`pen`] put rasters and axes on the page; text, tables and controls are plain elements.
//! * It has no clock of the server's, keeps nothing but the theme, and asks nobody but its own origin.

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

/// Starts the page.
#[wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
    mount_to_body(shell::App);
}
