//! The theme, light or dark: the user's choice, otherwise the system's preference.

use leptos::ev;
use leptos::prelude::*;
use wasm_bindgen::prelude::*;

const KEY: &str = "paceline-theme";

/// The colors of canvases. CSS has its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inks {
    /// Text.
    pub ink: &'static str,
    /// Secondary text and axes.
    pub muted: &'static str,
    /// Grid lines.
    pub grid: &'static str,
    /// The background, behind text on a chart.
    pub ground: &'static str,
    /// The selection.
    pub accent: &'static str,
    /// The hatching of unknown cells.
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

/// The current theme.
#[derive(Clone, Copy)]
pub struct Theme {
    dark: RwSignal<bool>,
}

impl Theme {
    /// Reads the user's choice, or follows the system if there is none. Call once.
    pub fn start() -> Self {
        let theme = Self { dark: RwSignal::new(chosen().unwrap_or_else(system_is_dark)) };
        if let Some(query) = system() {
            let follow = Closure::<dyn FnMut()>::new(move || {
                if chosen().is_none() {
                    theme.dark.set(system_is_dark());
                }
            });
            let _ = query.add_event_listener_with_callback("change", follow.as_ref().unchecked_ref());
            // The listener lives as long as the page.
            follow.forget();
        }
        // The user may choose in another tab.
        let _storage = window_event_listener(ev::Custom::<web_sys::Event>::new("storage"), move |_| {
            theme.dark.set(chosen().unwrap_or_else(system_is_dark));
        });
        Effect::new(move |_| {
            let name = if theme.dark.get() { "dark" } else { "light" };
            if let Some(root) = document().document_element() {
                let _ = root.set_attribute("data-theme", name);
            }
        });
        theme
    }

    /// Returns true if the theme is dark.
    pub fn is_dark(&self) -> bool {
        self.dark.get()
    }

    /// Returns the colors of canvases.
    pub fn inks(&self) -> Inks {
        if self.dark.get() { DARK } else { LIGHT }
    }

    /// Switches the theme. Switching to the system's preference means to follow the system again.
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
