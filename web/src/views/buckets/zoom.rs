//! The visible part of the waterfall: its time and its rows, which the miniature and the waterfall share.

use leptos::prelude::*;
use model::buckets::rows::Rows;
use viz::raster::gantt::View;
use viz::span::Span;

use super::StepSelection;
use crate::canvas::Margins;
use crate::range::span_in_address;
use crate::route::Address;
use crate::widgets::TooltipPlace;

/// The room around the waterfall. Its axis is above it, in the miniature.
pub const MARGINS: Margins = Margins { left: 84.0, right: 12.0, top: 6.0, bottom: 6.0 };
/// The smallest number of ranks to which the waterfall can zoom.
const MIN_RANKS: f64 = 2.0;
/// The shortest range to which the waterfall can zoom, in nanoseconds.
const MIN_NANOS: f64 = 200.0;

/// The visible part of the step.
#[derive(Clone, Copy)]
pub struct Zoom {
    /// The visible time, if not the whole step is visible. It is in the address.
    pub time: RwSignal<Option<Span>>,
    /// The visible rows, if not all are. It is in the address.
    pub rows: RwSignal<Option<Span>>,
    /// The whole step, in nanoseconds since its origin.
    pub whole: Memo<Span>,
    /// The number of drawn rows.
    pub ranks: Memo<usize>,
    /// What is visible.
    pub view: Memo<View>,
    /// The pointer.
    pub place: RwSignal<Option<TooltipPlace>>,
}

impl Zoom {
    /// Returns the part that the address names.
    pub fn new(selection: StepSelection, address: Address) -> Self {
        let (time, rows) = (span_in_address(address, "time"), span_in_address(address, "ranks"));
        let ranks = Memo::new(move |_| {
            selection.drawn.with(|drawn| drawn.as_ref().map_or(4, |drawn| drawn.gantt.rows()))
        });
        let whole = Memo::new(move |_| {
            let span = selection.shown.with(|all| all.as_ref().map_or(1.0, |all| all.span_nanos.max(1.0)));
            Span::new(0.0, span)
        });
        let view = Memo::new(move |_| {
            let all = Span::new(0.0, ranks.get().max(1) as f64);
            // A few chosen rows are all visible.
            let zoomed = rows.get().filter(|_| selection.rows.get() == Rows::All);
            View {
                time: time.get().map_or(whole.get(), |time| time.clamp(whole.get(), MIN_NANOS)),
                rows: zoomed.map_or(all, |rows| rows.clamp(all, MIN_RANKS)),
            }
        });
        Self { time, rows, whole, ranks, view, place: RwSignal::new(None) }
    }

    /// Zooms the time by a factor. `anchor` is the share of the visible time that stays before the fixed point.
    pub fn zoom_time(self, anchor: f64, factor: f64) {
        self.time.set(Some(self.view.get_untracked().time.zoom(anchor, factor)));
    }

    fn zoom_rows(self, factor: f64) {
        let (rows, all) = (self.view.get_untracked().rows, self.ranks.get_untracked() as f64);
        let at = self.place.get_untracked().map_or(0.5, |p| {
            ((p.y - MARGINS.top) / (p.height - MARGINS.top - MARGINS.bottom)).clamp(0.0, 1.0)
        });
        let next = rows.zoom(at, factor);
        self.rows.set((next.len() < all).then(|| next.clamp(Span::new(0.0, all), MIN_RANKS)));
    }

    /// Moves by shares of the visible time and of the visible rows.
    pub fn pan(self, dx: f64, dy: f64) {
        if self.time.with_untracked(Option::is_some) {
            self.time.set(Some(self.view.get_untracked().time.pan(dx)));
        }
        if dy != 0.0 && self.rows.with_untracked(Option::is_some) {
            self.rows.set(Some(self.view.get_untracked().rows.pan(dy)));
        }
    }

    /// Shows the whole step.
    pub fn show_all(self) {
        self.time.set(None);
        self.rows.set(None);
    }

    /// Returns the share of the visible time that lies before the pointer.
    fn anchor(self) -> f64 {
        self.place.get_untracked().map_or(0.5, |p| {
            ((p.x - MARGINS.left) / (p.width - MARGINS.left - MARGINS.right)).clamp(0.0, 1.0)
        })
    }

    /// Handles the keys that zoom and move. Returns true if `key` was one of them.
    pub fn key(self, key: &str) -> bool {
        match key {
            "w" => self.zoom_time(self.anchor(), 0.7),
            "s" => self.zoom_time(self.anchor(), 1.0 / 0.7),
            "a" => self.pan(-0.2, 0.0),
            "d" => self.pan(0.2, 0.0),
            "W" => self.zoom_rows(0.7),
            "S" => self.zoom_rows(1.0 / 0.7),
            "0" | "F" => self.show_all(),
            _ => return false,
        }
        true
    }

    /// Moves the visible rows so that this one is among them.
    pub fn reveal_row(self, row: usize) {
        let rows = self.view.get_untracked().rows;
        let revealed = rows.reveal(row as f64, row as f64 + 1.0);
        if self.rows.with_untracked(Option::is_some) && revealed != rows {
            self.rows.set(Some(revealed));
        }
    }
}
