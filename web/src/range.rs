//! The visible steps, which every chart and figure of a run follows. [`crate::step_chart`] has what the pointer and keys do to
//! them.

use leptos::prelude::*;
use leptos_use::signal_debounced;
use model::range;
use viz::span::Span;
use viz::steps::newest;

use crate::live::{AT_REST_MILLIS, Live};
use crate::route::Address;
use crate::socket::Link;

/// The smallest number of steps to which charts can zoom.
const MIN_STEPS: f64 = 8.0;
/// The time for which the range must rest before the address follows, in milliseconds. Browsers refuse to change the
/// address on every frame of a drag.
const ADDRESS_AT_REST_MILLIS: f64 = 300.0;

/// Creates a span that is also in the address, as `30..149`; `None` if there is none. It is read from the address, even after
/// going back or following a link, and written to the address once it rests.
pub fn span_in_address(address: Address, key: &'static str) -> RwSignal<Option<Span>> {
    let named = untrack(|| address.param(key));
    let span = RwSignal::new(named.as_deref().and_then(range::read));
    let agreed = StoredValue::new(named);
    Effect::new(move |_| {
        let named = address.param(key);
        if named != agreed.get_value() {
            agreed.set_value(named.clone());
            span.set(named.as_deref().and_then(range::read));
        }
    });
    let text = Memo::new(move |_| span.get().map(range::write));
    let at_rest: Signal<Option<String>> = signal_debounced(text, ADDRESS_AT_REST_MILLIS);
    Effect::new(move |_| {
        let rested = at_rest.get();
        // A span that has changed again is not at rest.
        if rested == text.get_untracked() && agreed.get_value() != rested {
            agreed.set_value(rested.clone());
            address.set([(key, rested)]);
        }
    });
    span
}

/// The steps of a run that its page shows. Three sets of steps have three names: the `stored` ones are all that the page
/// has, the `selected` ones are what the user has chosen among them, and the `visible` ones are what charts show: the selected
/// ones, or the newest stored ones if none are selected.
#[derive(Clone, Copy)]
pub struct Range {
    selected: RwSignal<Option<Span>>,
    /// The last stored step among the selected ones, once the selection rests; `None` while the newest steps are followed.
    pub last_selected: Signal<Option<u64>>,
    live: Live,
}

impl Range {
    /// Creates a range that shows the steps in the address, or follows the newest steps of `live`.
    pub fn new(live: Live, address: Address) -> Self {
        let selected = span_in_address(address, "steps");
        let last = Memo::new(move |_| {
            let selected = selected.get()?;
            live.drawn.track();
            live.steps.with_value(|steps| {
                let last = steps.rows_in(selected).end.checked_sub(1)?;
                steps.step.get(last).copied()
            })
        });
        Self { selected, last_selected: signal_debounced(last, AT_REST_MILLIS), live }
    }

    /// Selects the visible steps while the dashboard is paused. The address then contains them, so that a shared link shows
    /// the same. Call once.
    pub fn hold_while_paused(&self) {
        let (range, live, held) = (*self, self.live, StoredValue::new(None));
        let is_paused = Memo::new(move |_| matches!(live.link.get(), Link::Paused(_)));
        Effect::new(move |_| {
            if !is_paused.get() {
                // Steps that the user has selected in the meantime stay selected.
                if held.get_value().is_some() && held.get_value() == range.selected.get_untracked() {
                    range.follow();
                }
                held.set_value(None);
            } else if range.selected.get_untracked().is_none() {
                range.select(untrack(|| range.visible()));
                held.set_value(range.selected.get_untracked());
            }
        });
    }

    /// Returns all stored steps.
    pub fn stored(&self) -> Span {
        self.live.drawn.track();
        self.live.steps.with_value(|steps| steps.bounds())
    }

    /// Returns true if `step` is not newer than all stored steps. What is fetched of a step is wanted again when it has arrived: a
    /// link may name a step that the server still analyzes.
    pub fn has_arrived(&self, step: u64) -> bool {
        (step as f64) < self.stored().end
    }

    /// Returns the selected steps; `None` while the newest steps are followed.
    pub fn selected(&self) -> Option<Span> {
        self.selected.get()
    }

    /// Returns the first and the last selected step, which reports cover; `None` while the newest steps are followed.
    pub fn selected_ends(&self) -> Option<(u64, u64)> {
        self.selected.get().map(range::ends)
    }

    /// Returns the visible steps. While they follow the newest ones, they may extend beyond those.
    pub fn visible(&self) -> Span {
        let stored = self.stored();
        match self.selected.get() {
            Some(selected) if stored.is_empty() => selected,
            // Steps that are no longer stored cannot be shown.
            Some(selected) => selected.clamp(stored, MIN_STEPS),
            None => newest(stored, self.live.has_ended()),
        }
    }

    /// Returns the first and the last visible step that is stored; `None` without steps.
    pub fn visible_ends(&self) -> Option<(u64, u64)> {
        let (visible, stored) = (self.visible(), self.stored());
        let shown = Span::new(visible.start.max(stored.start), visible.end.min(stored.end));
        (!stored.is_empty()).then(|| range::ends(shown))
    }

    /// Returns true while the newest steps are followed.
    pub fn follows(&self) -> bool {
        self.selected.get().is_none()
    }

    /// Follows the newest steps again, at the default width.
    pub fn follow(&self) {
        self.selected.set(None);
    }

    pub fn select(&self, steps: Span) {
        let stored = untrack(|| self.stored());
        if !stored.is_empty() {
            self.selected.set(Some(steps.clamp(stored, MIN_STEPS)));
        }
    }

    /// Selects all stored steps.
    pub fn select_all(&self) {
        self.select(untrack(|| self.stored()));
    }

    /// Selects so many steps later, or earlier if negative. Moving past the newest step follows the newest steps again.
    pub fn shift(&self, steps: f64) {
        let (visible, stored) = untrack(|| (self.visible(), self.stored()));
        if visible.end + steps > stored.end && steps > 0.0 {
            self.follow();
        } else {
            let end = visible.end.min(stored.end) + steps;
            self.select(Span::new((visible.start + steps).min(end - 1.0), end));
        }
    }

    /// Makes `step` visible.
    pub fn reveal(&self, step: u64) {
        let visible = untrack(|| self.visible());
        let revealed = visible.reveal(step as f64, step as f64 + 1.0);
        if revealed != visible {
            self.select(revealed);
        }
    }
}

/// The buttons that show the newest steps or all steps. A run that has ended has only the second button, because
/// its page shows all steps anyway.
#[component]
pub fn RangeButtons() -> impl IntoView {
    let range = expect_context::<Range>();
    let has_ended = Memo::new(move |_| range.live.has_ended());
    let shows_all = move || match range.selected() {
        Some(selected) => selected == range.stored(),
        None => has_ended.get(),
    };
    let show_all = move |_| if has_ended.get_untracked() { range.follow() } else { range.select_all() };
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
