//! The visible steps and the crosshair, shared by all charts of a run.

use leptos::prelude::*;
use leptos_use::signal_debounced;
use model::range;
use viz::span::Span;
use viz::steps::newest;

use crate::canvas::Size;
use crate::live::{AT_REST_MILLIS, Live};
use crate::plot::Gesture;
use crate::route::Address;
use crate::socket::Link;

/// The smallest number of steps to which charts can zoom.
const MIN_STEPS: f64 = 8.0;
/// The time for which the range must rest before the address follows, in milliseconds. Browsers refuse to change the
/// address on every frame of a drag.
const ADDRESS_AT_REST_MILLIS: f64 = 300.0;

/// The position of the crosshair in every chart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cursor {
    /// The step under the pointer.
    pub step: Option<u64>,
    /// The rank under the pointer.
    pub rank: Option<u32>,
}

/// Creates a selected range that is stored in the address as `30..149`; `None` if nothing is selected.
pub fn chosen(address: Address, key: &'static str) -> RwSignal<Option<Span>> {
    in_address(address, key, range::read, |span| range::write(*span))
}

/// Creates a value that is also in the address under `key`. It is read from the address, even after going back or
/// following a link, and written to the address once it rests.
fn in_address<T: Clone + PartialEq + Send + Sync + 'static>(
    address: Address,
    key: &'static str,
    read: fn(&str) -> Option<T>,
    write: fn(&T) -> String,
) -> RwSignal<Option<T>> {
    let named = untrack(|| address.param(key));
    let choice = RwSignal::new(named.as_deref().and_then(read));
    let agreed = StoredValue::new(named);
    Effect::new(move |_| {
        let named = address.param(key);
        if named != agreed.get_value() {
            agreed.set_value(named.clone());
            choice.set(named.as_deref().and_then(read));
        }
    });
    let text = Memo::new(move |_| choice.with(|choice| choice.as_ref().map(write)));
    let at_rest: Signal<Option<String>> = signal_debounced(text, ADDRESS_AT_REST_MILLIS);
    Effect::new(move |_| {
        let rested = at_rest.get();
        // A value that has changed again is not at rest.
        if rested == text.get_untracked() && agreed.get_value() != rested {
            agreed.set_value(rested.clone());
            address.set([(key, rested)]);
        }
    });
    choice
}

/// The visible steps.
#[derive(Clone, Copy)]
pub struct Range {
    /// The selected range; `None` follows the newest steps.
    chosen: RwSignal<Option<Span>>,
    /// The last stored step of the selected range, once the range rests; `None` while the newest steps are followed.
    pub at: Signal<Option<u64>>,
    /// The crosshair.
    pub cursor: RwSignal<Cursor>,
    live: Live,
}

impl Range {
    /// Creates a range that shows the steps in the address, or follows the newest steps of `live`.
    pub fn new(live: Live, address: Address) -> Self {
        let chosen = chosen(address, "steps");
        let at = Memo::new(move |_| {
            let range = chosen.get()?;
            live.drawn.track();
            live.steps.with_value(|steps| {
                let last = steps.rows_in(range).end.checked_sub(1)?;
                steps.step.get(last).copied()
            })
        });
        let at = signal_debounced(at, AT_REST_MILLIS);
        Self { chosen, at, cursor: RwSignal::new(Cursor::default()), live }
    }

    /// Holds the visible range while the dashboard is paused. The address then contains the range, so that a shared link
    /// shows the same. Call once.
    pub fn hold_while_paused(&self) {
        let (range, live, held) = (*self, self.live, StoredValue::new(None));
        let is_paused = Memo::new(move |_| matches!(live.link.get(), Link::Paused(_)));
        Effect::new(move |_| {
            if !is_paused.get() {
                // A range that the user has selected in the meantime stays.
                if held.get_value().is_some() && held.get_value() == range.chosen.get_untracked() {
                    range.follow();
                }
                held.set_value(None);
            } else if range.chosen.get_untracked().is_none() {
                range.choose(untrack(|| range.view()));
                held.set_value(range.chosen.get_untracked());
            }
        });
    }

    /// Moves back or forward by one step. Moving past the newest step follows the newest steps again.
    pub fn move_by(&self, by: f64) {
        let view = untrack(|| self.view());
        let bounds = untrack(|| self.known());
        if view.end + by > bounds.end && by > 0.0 {
            self.follow();
        } else {
            // A view that follows may extend beyond the newest step.
            let end = view.end.min(bounds.end) + by;
            self.choose(Span::new((view.start + by).min(end - 1.0), end));
        }
    }

    /// Returns all stored steps.
    pub fn known(&self) -> Span {
        self.live.drawn.track();
        self.live.steps.with_value(|steps| steps.bounds())
    }

    /// Returns the selected range; `None` while the newest steps are followed.
    pub fn selection(&self) -> Option<Span> {
        self.chosen.get()
    }

    /// Returns the first and the last selected step, which reports cover; `None` while the newest steps are followed.
    pub fn selected(&self) -> Option<(u64, u64)> {
        self.chosen.get().map(range::ends)
    }

    /// Returns the visible steps.
    pub fn view(&self) -> Span {
        self.live.drawn.track();
        let bounds = self.live.steps.with_value(|steps| steps.bounds());
        match self.chosen.get() {
            Some(span) if bounds.is_empty() => span,
            // Steps that are no longer stored cannot be shown.
            Some(span) => span.clamp(bounds, MIN_STEPS),
            None => newest(bounds, self.live.has_ended()),
        }
    }

    /// Returns true while the newest steps are shown.
    pub fn follows(&self) -> bool {
        self.chosen.get().is_none()
    }

    /// Follows the newest steps again, at the default width.
    pub fn follow(&self) {
        self.chosen.set(None);
    }

    /// Shows all stored steps.
    pub fn show_all(&self) {
        self.choose(untrack(|| self.known()));
    }

    /// Moves the range so that `step` is visible.
    pub fn reveal(&self, step: u64) {
        let view = untrack(|| self.view());
        let revealed = view.reveal(step as f64, step as f64 + 1.0);
        if revealed != view {
            self.choose(revealed);
        }
    }

    /// Zooms around `anchor`, a fraction of the visible range.
    pub fn zoom(&self, anchor: f64, factor: f64) {
        self.choose(untrack(|| self.view()).zoom(anchor, factor));
    }

    /// Moves by a fraction of the visible range.
    pub fn pan(&self, fraction: f64) {
        self.choose(untrack(|| self.view()).pan(fraction));
    }

    /// Handles the keys W, S, A, D and F. Returns true if `key` was one of them.
    pub fn key(&self, key: &str) -> bool {
        let anchor = self.anchor();
        match key {
            "w" => self.zoom(anchor, 0.7),
            "s" => self.zoom(anchor, 1.0 / 0.7),
            "a" => self.pan(-0.2),
            "d" => self.pan(0.2),
            "f" => self.follow(),
            "F" => self.show_all(),
            _ => return false,
        }
        true
    }

    /// Handles zooming and panning by pointer. Returns true if the gesture was one of them.
    pub fn gesture(&self, gesture: &Gesture, size: Size) -> bool {
        match *gesture {
            Gesture::Zoom { x, factor, .. } => self.zoom(x / size.width, factor),
            Gesture::Pan { dx, .. } => self.pan(dx / size.width),
            Gesture::DoubleClick => self.follow(),
            _ => return false,
        }
        true
    }

    fn anchor(&self) -> f64 {
        let view = untrack(|| self.view());
        let at = self.cursor.get_untracked().step.map_or(0.5, |step| view.to_pixel(step as f64 + 0.5, 1.0));
        at.clamp(0.0, 1.0)
    }

    /// Selects steps.
    pub fn choose(&self, span: Span) {
        let bounds = self.live.steps.with_value(|steps| steps.bounds());
        if bounds.is_empty() {
            return;
        }
        self.chosen.set(Some(span.clamp(bounds, MIN_STEPS)));
    }
}

/// The buttons that show the newest steps or all steps. A run that has ended has only the second button, because
/// its page shows all steps anyway.
#[component]
pub fn RangeButtons() -> impl IntoView {
    let range = expect_context::<Range>();
    let has_ended = Memo::new(move |_| range.live.has_ended());
    let shows_all = move || match range.selection() {
        Some(chosen) => chosen == range.known(),
        None => has_ended.get(),
    };
    let show_all = move |_| if has_ended.get_untracked() { range.follow() } else { range.show_all() };
    view! {
        <div class="segments" role="group" aria-label="Visible steps">
            <Show when=move || !has_ended.get()>
                <button
                    aria-pressed=move || range.follows().to_string()
                    title="Follow the newest steps (F)"
                    on:click=move |_| range.follow()
                >
                    "Newest"
                </button>
            </Show>
            <button
                aria-pressed=move || shows_all().to_string()
                title="All stored steps (Shift + F)"
                on:click=show_all
            >
                "All"
            </button>
        </div>
    }
}
