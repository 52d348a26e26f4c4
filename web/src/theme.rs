//! Light or dark: what the system prefers, or what was chosen here.

use leptos::ev;
use leptos::prelude::*;
use wasm_bindgen::prelude::*;

use crate::cells::{Var, effect};

const KEY: &str = "paceline-theme";

/// Colours for what is drawn on a canvas; CSS has its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inks {
    /// Text.
    pub ink: &'static str,
    /// Secondary text and axes.
    pub muted: &'static str,
    /// Grid lines.
    pub grid: &'static str,
    /// The page, behind text that lies on a chart.
    pub ground: &'static str,
    /// What is selected.
    pub accent: &'static str,
    /// Hatching of unknown cells.
    pub unknown: viz::palette::Rgba,
}

const LIGHT: Inks = Inks {
    ink: "#1b1f24",
    muted: "#5b6470",
    grid: "rgb(90 100 112 / 0.18)",
    ground: "#ffffff",
    accent: "#0b5cad",
    unknown: viz::palette::rgb(0x9a, 0xa2, 0xac),
};

const DARK: Inks = Inks {
    ink: "#e8ebef",
    muted: "#98a2ae",
    grid: "rgb(170 180 190 / 0.16)",
    ground: "#14181d",
    accent: "#7cc4ff",
    unknown: viz::palette::rgb(0x5a, 0x64, 0x70),
};

/// The theme in force.
#[derive(Clone, Copy)]
pub struct Theme {
    dark: Var<bool>,
}

impl Theme {
    /// Reads what was chosen, follows the system where nothing was. Call once.
    pub fn start() -> Self {
        let theme = Self { dark: Var::new(chosen().unwrap_or_else(system_is_dark)) };
        if let Some(query) = system() {
            let follow = Closure::<dyn FnMut()>::new(move || {
                if chosen().is_none() {
                    theme.dark.set(system_is_dark());
                }
            });
            let _ = query.add_event_listener_with_callback("change", follow.as_ref().unchecked_ref());
            // It listens for as long as the page lives.
            follow.forget();
        }
        // Another tab may have chosen.
        let _storage = window_event_listener(ev::Custom::<web_sys::Event>::new("storage"), move |_| {
            theme.dark.set(chosen().unwrap_or_else(system_is_dark));
        });
        effect(move || {
            let name = if theme.dark.get() { "dark" } else { "light" };
            if let Some(root) = document().document_element() {
                let _ = root.set_attribute("data-theme", name);
            }
        });
        theme
    }

    /// True when dark is in force.
    pub fn is_dark(&self) -> bool {
        self.dark.get()
    }

    /// Colours for a canvas.
    pub fn inks(&self) -> Inks {
        if self.dark.get() { DARK } else { LIGHT }
    }

    /// Chooses the other one. Choosing what the system prefers means to follow it again.
    pub fn toggle(&self) {
        let dark = !self.dark.get_untracked();
        self.dark.set(dark);
        if let Some(storage) = storage() {
            let _ = if dark == system_is_dark() {
                storage.remove_item(KEY)
            } else {
                storage.set_item(KEY, if dark { "dark" } else { "light" })
            };
        }
    }
}

fn storage() -> Option<web_sys::Storage> {
    window().local_storage().ok().flatten()
}

fn chosen() -> Option<bool> {
    match storage()?.get_item(KEY).ok().flatten()?.as_str() {
        "dark" => Some(true),
        "light" => Some(false),
        _ => None,
    }
}

fn system() -> Option<web_sys::MediaQueryList> {
    window().match_media("(prefers-color-scheme: dark)").ok().flatten()
}

fn system_is_dark() -> bool {
    system().is_some_and(|query| query.matches())
}
