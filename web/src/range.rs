//! Which steps the charts show, and where the pointer is: shared by every chart of a run.

use std::time::Duration;

use leptos::prelude::*;
use units::fixed;
use viz::span::Span;
use viz::steps::newest;
use viz::within::within;
use wire::views::RunState;

use crate::canvas::{Gesture, Size};
use crate::cells::{Kept, Var, effect, memo};
use crate::live::Live;
use crate::route::Router;
use crate::socket::Link;

/// One cannot zoom in further than this.
const MIN_STEPS: f64 = 8.0;
/// The address follows when the range has not changed for this long: browsers refuse to change it at every frame
/// of a drag.
const AT_REST: Duration = Duration::from_millis(300);

/// Where the pointer is, in every chart at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cursor {
    /// Over this step.
    pub step: Option<u64>,
    /// Over this rank.
    pub rank: Option<u32>,
}

/// A stretch that was chosen, kept in the address as `30..150`; none while it was not.
pub fn chosen(router: Router, key: &'static str) -> Var<Option<Span>> {
    in_address(router, key, read, |span| format!("{}..{}", fixed(span.start, 0), fixed(span.end, 0)))
}

/// A choice that is also in the address under `key`: it is read from there, also when one goes back or follows
/// a link, and written there when it has come to rest.
fn in_address<T: Clone + PartialEq + Send + Sync + 'static>(
    router: Router,
    key: &'static str,
    read: fn(&str) -> Option<T>,
    write: fn(&T) -> String,
) -> Var<Option<T>> {
    let choice = Var::new(None);
    let agreed = Kept::new(None::<String>);
    effect(move || {
        let named = router.param(key);
        if named != agreed.get() {
            agreed.set(named.clone());
            choice.set(named.as_deref().and_then(read));
        }
    });
    let turn = Kept::new(0u32);
    effect(move || {
        let text = choice.get().as_ref().map(write);
        let mine = turn.try_update(|turn| {
            *turn += 1;
            *turn
        });
        let at_rest = move || {
            if mine.is_some() && turn.try_get() == mine && agreed.get() != text {
                agreed.set(text.clone());
                router.set([(key, text.clone())]);
            }
        };
        set_timeout(at_rest, AT_REST);
    });
    choice
}

/// The visible steps.
#[derive(Clone, Copy)]
pub struct Range {
    /// What was chosen; `None` follows the newest steps.
    chosen: Var<Option<Span>>,
    /// The step that the page is rewound to; `None` when it is live.
    pub at: Var<Option<u64>>,
    /// The pointer.
    pub cursor: Var<Cursor>,
    live: Live,
}

impl Range {
    /// Shows the steps that the address names, else follows the newest steps of `live`.
    pub fn new(live: Live, router: Router) -> Self {
        Self {
            chosen: chosen(router, "steps"),
            at: in_address(router, "at", |text| text.parse().ok(), u64::to_string),
            cursor: Var::new(Cursor::default()),
            live,
        }
    }

    /// Paused, the page stands still at a step, and the address says at which: whoever is sent it sees the same. Call
    /// once.
    pub fn hold_while_paused(&self) {
        let (range, live, held) = (*self, self.live, Kept::new(None));
        let is_paused = memo(move || matches!(live.link.get(), Link::Paused(_)));
        effect(move || {
            if !is_paused.get() {
                // What someone rewound to meanwhile stays.
                if held.get().is_some() && held.get() == range.at.get_untracked() {
                    range.at.set(None);
                }
                held.set(None);
            } else if range.at.get_untracked().is_none() {
                let last = live.steps.with(|steps| steps.step.last().copied());
                held.set(last);
                range.at.set(last);
            }
        });
    }

    /// Shows the run as it was when `step` was the newest; `None` is live again.
    pub fn rewind(&self, step: Option<u64>) {
        if self.chosen.get_untracked().is_some() {
            self.chosen.set(None);
        }
        self.at.set(step);
    }

    /// Goes back or on by one kept step; beyond the newest it is live again.
    pub fn move_by(&self, by: isize) {
        let at = self.at.get_untracked();
        let next = self.live.steps.with(|steps| {
            let newest = steps.step.len().checked_sub(1)?;
            let row = at.map_or(newest, |at| steps.step.partition_point(|&step| step < at));
            let row = row.saturating_add_signed(by);
            (row <= newest).then(|| steps.step[row])
        });
        self.rewind(next);
    }

    /// All kept steps, up to the one that the page is rewound to.
    pub fn known(&self) -> Span {
        let bounds = self.live.steps.with(|steps| steps.bounds());
        let end = self.at.get().map_or(bounds.end, |at| bounds.end.min(at as f64 + 1.0));
        Span::new(bounds.start, end.max(bounds.start))
    }

    /// What is visible now.
    pub fn view(&self) -> Span {
        self.live.drawn.track();
        let bounds = self.live.steps.with(|steps| steps.bounds());
        match self.chosen.get() {
            Some(span) if bounds.is_empty() => span,
            // Steps that are no longer kept cannot be shown.
            Some(span) => span.clamp(bounds, MIN_STEPS),
            None => newest(self.known(), self.at.get().is_none() && self.ended()),
        }
    }

    /// True while the newest steps are shown.
    pub fn follows(&self) -> bool {
        self.chosen.get().is_none()
    }

    /// Follows again, at the default width.
    pub fn follow(&self) {
        self.chosen.set(None);
    }

    /// Shows every kept step.
    pub fn show_all(&self) {
        self.choose(self.live.steps.with(|steps| steps.bounds()));
    }

    /// Moves so that `step` is visible.
    pub fn reveal(&self, step: u64) {
        let view = untrack(|| self.view());
        let revealed = view.reveal(step as f64, step as f64 + 1.0);
        if revealed != view {
            self.choose(revealed);
        }
    }

    /// Zooms around the pointer, or around the middle.
    pub fn zoom(&self, anchor: f64, factor: f64) {
        self.choose(untrack(|| self.view()).zoom(anchor, factor));
    }

    /// Moves by a fraction of what is visible.
    pub fn pan(&self, fraction: f64) {
        self.choose(untrack(|| self.view()).pan(fraction));
    }

    /// W, S, A, D and F. True when it was one of them.
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

    /// Zoom and pan by pointer. True when it was one of them.
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
        within(at, 0.0, 1.0)
    }

    fn choose(&self, span: Span) {
        let bounds = self.live.steps.with(|steps| steps.bounds());
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

/// The range that an address names.
fn read(text: &str) -> Option<Span> {
    let (start, end) = text.split_once("..")?;
    let span = Span::new(start.parse::<u32>().ok()?.into(), end.parse::<u32>().ok()?.into());
    (!span.is_empty()).then_some(span)
}
