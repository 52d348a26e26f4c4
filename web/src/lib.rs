//! The dashboard: a thin shell over [`viz`], which draws, and [`wire`], which defines the data.
//!
//! * [`shell`] has the routes. [`views`] has one module per view, and a folder for the parts of a view.
//! * [`route`] holds the address, [`live`] the data, and [`range`] the visible steps. Each is a set of signals, and
//!   every view is a function of them.
//! * [`step_chart`] decides what a click, a drag and the keys do on charts over steps, and [`keys`] lists the keys.
//! * [`polled`] fetches what the server does not push.
//! * [`plot`] puts rasters on the page, and [`pen`] draws axes and text over them. Text, tables and controls are plain elements.
//! * The dashboard has no access to the server's clock, stores only the theme, and sends requests only to its own
//!   origin.

mod access;
mod api;
mod canvas;
mod commands;
mod dates;
mod download;
#[cfg(test)]
mod fixture;
mod heatmap;
mod imports;
mod key_figure;
mod keys;
mod live;
#[cfg(test)]
mod mounted;
mod news;
mod overhead;
mod pen;
mod periods;
mod plot;
mod polled;
mod range;
mod route;
mod run_choice;
mod shell;
mod socket;
mod step_chart;
mod table;
mod terms;
mod theme;
mod tiles;
mod traced;
mod views;
mod widgets;
mod with_steps;
mod xy;

use leptos::prelude::*;

#[cfg(test)]
wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_browser);

/// Starts the dashboard. Tests start single components.
#[cfg_attr(not(test), wasm_bindgen::prelude::wasm_bindgen(start))]
pub fn start() {
    console_error_panic_hook::set_once();
    // The page shows its frame until the dashboard is there.
    if let Some(frame) = leptos::prelude::document().get_element_by_id("frame") {
        frame.remove();
    }
    mount_to_body(shell::App);
}
