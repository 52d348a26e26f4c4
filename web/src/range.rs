//! Which steps the charts show, and where the pointer is: shared by every chart of a run.

use leptos::prelude::*;
use viz::span::Span;
use viz::steps::newest;
use wire::views::RunState;

use crate::canvas::{Gesture, Size};
use crate::live::Live;

/// One cannot zoom in further than this.
const MIN_STEPS: f64 = 8.0;

/// Where the pointer is, in every chart at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cursor {
    /// Over this step.
    pub step: Option<u64>,
    /// Over this rank.
    pub rank: Option<u32>,
}

/// The visible steps.
#[derive(Clone, Copy)]
pub struct Range {
    /// What was chosen; `None` follows the newest steps.
    chosen: RwSignal<Option<Span>>,
    /// The pointer.
    pub cursor: RwSignal<Cursor>,
    live: Live,
}

impl Range {
    /// Follows the newest steps of `live`.
    pub fn new(live: Live) -> Self {
        Self { chosen: RwSignal::new(None), cursor: RwSignal::new(Cursor::default()), live }
    }

    /// What is visible now.
    pub fn view(&self) -> Span {
        self.live.drawn.track();
        let bounds = self.live.steps.with_value(|steps| steps.bounds());
        match self.chosen.get() {
            Some(span) => span,
            None => newest(bounds, self.ended()),
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
        self.choose(self.live.steps.with_value(|steps| steps.bounds()));
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
