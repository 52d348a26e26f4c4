//! The theme, light or dark: the user's choice, otherwise the system's preference.

use leptos::ev;
use leptos::prelude::*;
use leptos_use::use_preferred_dark;

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
    /// What a verdict explains.
    pub alarm: &'static str,
    /// The hatching of unknown cells.
    pub unknown: viz::palette::Rgba,
    /// A line without a meaning of its own.
    pub line: viz::palette::Rgba,
}

const LIGHT: Inks = Inks {
    ink: "#1b1f24",
    muted: "#5b6470",
    grid: "rgb(90 100 112 / 0.18)",
    ground: "#ffffff",
    accent: "#0b5cad",
    alarm: "#b8243a",
    unknown: viz::palette::rgb(0x9a, 0xa2, 0xac),
    line: viz::palette::rgb(0x0b, 0x5c, 0xad),
};

const DARK: Inks = Inks {
    ink: "#e8ebef",
    muted: "#98a2ae",
    grid: "rgb(170 180 190 / 0.16)",
    ground: "#14181d",
    accent: "#7cc4ff",
    alarm: "#ff8d96",
    unknown: viz::palette::rgb(0x5a, 0x64, 0x70),
    line: viz::palette::rgb(0x7c, 0xc4, 0xff),
};

/// The current theme.
#[derive(Clone, Copy)]
pub struct Theme {
    /// The user's choice: true for dark. `None` follows the system.
    chosen: RwSignal<Option<bool>>,
    system_is_dark: Signal<bool>,
}

impl Theme {
    /// Reads the user's choice, or follows the system if there is none. Call once.
    pub fn start() -> Self {
        let theme = Self { chosen: RwSignal::new(stored()), system_is_dark: use_preferred_dark() };
        // The user may choose in another tab.
        let _storage = window_event_listener(ev::Custom::<web_sys::Event>::new("storage"), move |_| {
            theme.chosen.set(stored());
        });
        Effect::new(move |_| {
            let name = if theme.is_dark() { "dark" } else { "light" };
            if let Some(root) = document().document_element() {
                let _ = root.set_attribute("data-theme", name);
            }
        });
        theme
    }

    /// Returns true if the theme is dark.
    pub fn is_dark(&self) -> bool {
        self.chosen.get().unwrap_or_else(|| self.system_is_dark.get())
    }

    /// Returns the colors of canvases.
    pub fn inks(&self) -> Inks {
        if self.is_dark() { DARK } else { LIGHT }
    }

    /// Switches the theme. Switching to the system's preference means to follow the system again.
    pub fn toggle(&self) {
        let dark = !untrack(|| self.is_dark());
        let chosen = (dark != self.system_is_dark.get_untracked()).then_some(dark);
        self.chosen.set(chosen);
        if let Some(storage) = storage() {
            let _ = match chosen {
                None => storage.remove_item(KEY),
                Some(dark) => storage.set_item(KEY, if dark { "dark" } else { "light" }),
            };
        }
    }
}

fn storage() -> Option<web_sys::Storage> {
    window().local_storage().ok().flatten()
}

fn stored() -> Option<bool> {
    match storage()?.get_item(KEY).ok().flatten()?.as_str() {
        "dark" => Some(true),
        "light" => Some(false),
        _ => None,
    }
}
