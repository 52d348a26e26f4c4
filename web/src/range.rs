//! The visible steps and the crosshair, shared by all charts of a run.

use std::time::Duration;

use leptos::prelude::*;
use units::fixed;
use viz::span::Span;
use viz::steps::newest;
use wire::views::RunState;

use crate::api::Scope;
use crate::canvas::Size;
use crate::live::Live;
use crate::plot::Gesture;
use crate::route::Address;
use crate::socket::Link;

/// The smallest number of steps to which charts can zoom.
const MIN_STEPS: f64 = 8.0;
/// The time for which the range must rest before the address follows. Browsers refuse to change the address on every
/// frame of a drag.
const AT_REST: Duration = Duration::from_millis(300);

/// The position of the crosshair in every chart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cursor {
    /// The step under the pointer.
    pub step: Option<u64>,
    /// The rank under the pointer.
    pub rank: Option<u32>,
}

/// Creates a selected range that is stored in the address as `30..150`; `None` if nothing is selected.
pub fn chosen(address: Address, key: &'static str) -> RwSignal<Option<Span>> {
    in_address(address, key, read, |span| format!("{}..{}", fixed(span.start, 0), fixed(span.end, 0)))
}

/// Creates a value that is also in the address under `key`. It is read from the address, even after going back or
/// following a link, and written to the address once it rests.
fn in_address<T: Clone + PartialEq + Send + Sync + 'static>(
    address: Address,
    key: &'static str,
    read: fn(&str) -> Option<T>,
    write: fn(&T) -> String,
) -> RwSignal<Option<T>> {
    let choice = RwSignal::new(None);
    let agreed = StoredValue::new(None::<String>);
    Effect::new(move |_| {
        let named = address.param(key);
        if named != agreed.get_value() {
            agreed.set_value(named.clone());
            choice.set(named.as_deref().and_then(read));
        }
    });
    let turn = StoredValue::new(0u32);
    Effect::new(move |_| {
        let text = choice.get().as_ref().map(write);
        let mine = turn.try_update_value(|turn| {
            *turn += 1;
            *turn
        });
        let at_rest = move || {
            if mine.is_some() && turn.try_get_value() == mine && agreed.get_value() != text {
                agreed.set_value(text.clone());
                address.set([(key, text.clone())]);
            }
        };
        set_timeout(at_rest, AT_REST);
    });
    choice
}

/// The visible steps.
#[derive(Clone, Copy)]
pub struct Range {
    /// The selected range; `None` follows the newest steps.
    chosen: RwSignal<Option<Span>>,
    /// The step to which the dashboard is rewound; `None` if it is live.
    pub at: RwSignal<Option<u64>>,
    /// The crosshair.
    pub cursor: RwSignal<Cursor>,
    live: Live,
}

impl Range {
    /// Creates a range that shows the steps in the address, or follows the newest steps of `live`.
    pub fn new(live: Live, address: Address) -> Self {
        Self {
            chosen: chosen(address, "steps"),
            at: in_address(address, "at", |text| text.parse().ok(), u64::to_string),
            cursor: RwSignal::new(Cursor::default()),
            live,
        }
    }

    /// Rewinds the dashboard to the current step while it is paused. The address then contains the step, so that a
    /// shared link shows the same. Call once.
    pub fn hold_while_paused(&self) {
        let (range, live, held) = (*self, self.live, StoredValue::new(None));
        let is_paused = Memo::new(move |_| matches!(live.link.get(), Link::Paused(_)));
        Effect::new(move |_| {
            if !is_paused.get() {
                // A step to which the user has rewound in the meantime stays.
                if held.get_value().is_some() && held.get_value() == range.at.get_untracked() {
                    range.at.set(None);
                }
                held.set_value(None);
            } else if range.at.get_untracked().is_none() {
                let last = live.steps.with_value(|steps| steps.step.last().copied());
                held.set_value(last);
                range.at.set(last);
            }
        });
    }

    /// Shows the run from when `step` was the newest; `None` returns to live.
    pub fn rewind(&self, step: Option<u64>) {
        if self.chosen.get_untracked().is_some() {
            self.chosen.set(None);
        }
        self.at.set(step);
    }

    /// Moves back or forward by one stored step. Moving past the newest step returns to live.
    pub fn move_by(&self, by: isize) {
        let at = self.at.get_untracked();
        let next = self.live.steps.with_value(|steps| {
            let newest = steps.step.len().checked_sub(1)?;
            let row = at.map_or(newest, |at| steps.step.partition_point(|&step| step < at));
            let row = row.saturating_add_signed(by);
            (row <= newest).then(|| steps.step[row])
        });
        self.rewind(next);
    }

    /// Returns all stored steps, up to the one to which the dashboard is rewound.
    pub fn known(&self) -> Span {
        let bounds = self.live.steps.with_value(|steps| steps.bounds());
        let end = self.at.get().map_or(bounds.end, |at| bounds.end.min(at as f64 + 1.0));
        Span::new(bounds.start, end.max(bounds.start))
    }

    /// Returns the steps that reports cover: the selected range, or the steps up to the one to which the dashboard is
    /// rewound.
    pub fn scope(&self) -> Scope {
        let last = |end: f64| (end.ceil() - 1.0).max(0.0) as u64;
        match (self.chosen.get(), self.at.get()) {
            (Some(span), at) => {
                let first = span.start.floor().max(0.0) as u64;
                Scope::Between(first, last(span.end).min(at.unwrap_or(u64::MAX)).max(first))
            }
            (None, Some(at)) => Scope::UpTo(at),
            (None, None) => Scope::Newest,
        }
    }

    /// Returns the visible steps.
    pub fn view(&self) -> Span {
        self.live.drawn.track();
        let bounds = self.live.steps.with_value(|steps| steps.bounds());
        match self.chosen.get() {
            Some(span) if bounds.is_empty() => span,
            // Steps that are no longer stored cannot be shown.
            Some(span) => span.clamp(bounds, MIN_STEPS),
            None => newest(self.known(), self.at.get().is_none() && self.ended()),
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
        self.choose(self.live.steps.with_value(|steps| steps.bounds()));
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

    fn choose(&self, span: Span) {
        let bounds = self.live.steps.with_value(|steps| steps.bounds());
        if bounds.is_empty() {
            return;
        }
        self.chosen.set(Some(span.clamp(bounds, MIN_STEPS)));
    }

    fn ended(&self) -> bool {
        self.live.run.with(|run| {
            run.as_ref()
                .is_some_and(|run| matches!(run.summary.state, RunState::Completed | RunState::Failed))
        })
    }
}

/// The buttons that show the newest steps or all steps.
#[component]
pub fn RangeButtons() -> impl IntoView {
    let range = expect_context::<Range>();
    view! {
        <div class="segments" role="group" aria-label="Visible steps">
            <button
                aria-pressed=move || range.follows().to_string()
                title="Follow the newest steps (F)"
                on:click=move |_| range.follow()
            >
                "Newest"
            </button>
            <button title="All stored steps (Shift + F)" on:click=move |_| range.show_all()>"All"</button>
        </div>
    }
}

/// Parses a range from the address.
fn read(text: &str) -> Option<Span> {
    let (start, end) = text.split_once("..")?;
    let span = Span::new(start.parse::<u32>().ok()?.into(), end.parse::<u32>().ok()?.into());
    (!span.is_empty()).then_some(span)
}
