//! The browser client: a thin shell over `viz`.

use leptos::prelude::*;
use wasm_bindgen::prelude::*;

/// Starts the page.
#[wasm_bindgen(start)]
pub fn start() {
    mount_to_body(|| view! { <p>"Paceline"</p> });
}
