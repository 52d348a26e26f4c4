//! The cells of the heatmap. They are fetched for the visible range and its margins, at its level of detail, one
//! request at a time.
//!
//! The current cells stay while better ones load. A coarse tile of the whole run is drawn below the fine tile of the
//! visible range, so that panning never shows an empty chart.

use leptos::prelude::*;
use leptos::task::spawn_local;
use viz::span::Span;
use viz::tiles::{Missing, NeededCells, join, value_at};
use wire::live::tile::{Measure, Reduce, Tile};

use crate::api::{self, Cells};
use crate::route::RunId;

/// The number of columns and rows of the coarse tile.
const BEHIND: (f64, f64) = (512.0, 256.0);
/// The factor by which the run must grow before the coarse tile is fetched again.
const GROWN: f64 = 1.25;

/// The range and figure that a heatmap shows.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The figure, and the reduction of cells.
    pub selection: (Measure, Reduce),
    /// The visible steps.
    pub steps: Span,
    /// The visible ranks.
    pub ranks: Span,
    /// The steps that exist.
    pub kept: Span,
    /// The number of ranks that exist.
    pub all_ranks: usize,
    /// The size in device pixels, across and down.
    pub pixels: (f64, f64),
}

/// A tile and its content.
struct Held {
    selection: (Measure, Reduce),
    tile: Tile,
    /// The newest step that the tile covers.
    upto: u64,
}

#[derive(Default)]
struct State {
    front: Option<Held>,
    behind: Option<Held>,
    busy: bool,
}

/// A request, and the use of its answer.
enum Fetch {
    Front(Cells),
    /// Newer columns. Columns before the step are no longer needed.
    More(Cells, u64),
    Behind(Cells),
}

/// The cells of one heatmap.
#[derive(Clone, Copy)]
pub struct Tiles {
    run: RunId,
    state: StoredValue<State>,
    /// A counter that changes whenever there is more to draw.
    pub changed: RwSignal<u32>,
    /// The reason why there are no cells.
    pub error: RwSignal<Option<String>>,
}

impl Tiles {
    /// Creates the cells of a run, without any tile.
    pub fn new(run: RunId) -> Self {
        let tiles = Self {
            run,
            state: StoredValue::new(State::default()),
            changed: RwSignal::new(0),
            error: RwSignal::new(None),
        };
        Effect::new(move |shown: Option<String>| {
            let id = run.get();
            if shown.is_some_and(|shown| shown != id) {
                tiles.state.set_value(State::default());
                tiles.changed.update(|n| *n += 1);
            }
            id
        });
        tiles
    }

    /// Passes the tiles to `read` in drawing order: the coarse one first.
    pub fn with<T>(&self, read: impl FnOnce(&[&Tile]) -> T) -> T {
        self.changed.track();
        self.state.with_value(|state| {
            let held: Vec<&Tile> =
                [&state.behind, &state.front].into_iter().flatten().map(|h| &h.tile).collect();
            read(&held)
        })
    }

    /// Returns the finest cell that contains (step, rank): its range and its value.
    pub fn cell(&self, step: u64, rank: u32) -> Option<(Cells, f32)> {
        self.changed.track();
        self.state.with_value(|state| {
            let held = [&state.front, &state.behind].into_iter().flatten();
            let found = held.filter_map(|held| {
                let value = value_at(&held.tile, step, rank)?;
                let (per_column, per_row) = (u64::from(held.tile.per_column), held.tile.per_row);
                let (step, rank) = (step / per_column * per_column, rank / per_row * per_row);
                let cells = Cells {
                    measure: held.selection.0,
                    reduce: held.selection.1,
                    steps: (step, step + per_column - 1),
                    ranks: (rank, rank + per_row - 1),
                    most: (held.tile.per_column, per_row),
                };
                Some((cells, value))
            });
            found.into_iter().next()
        })
    }

    /// Fetches the cells that `view` needs. Returns immediately; [`Self::changed`] changes when they arrive.
    pub fn ensure(&self, view: View) {
        let Some(fetch) = self.state.try_update_value(|state| next(state, view)).flatten() else { return };
        let tiles = *self;
        let run = self.run.get_untracked();
        spawn_local(async move {
            let (Fetch::Front(cells) | Fetch::More(cells, _) | Fetch::Behind(cells)) = fetch;
            let answer = api::tile(&run, cells).await;
            let error = answer.as_ref().err().cloned();
            // The view may be gone by now, or show another run.
            if !tiles.run.is_still(&run) {
                return;
            }
            if tiles.state.try_update_value(|state| take(state, fetch, answer)).is_some() {
                tiles.error.set(error);
                tiles.changed.update(|n| *n += 1);
            }
        });
    }
}

fn next(state: &mut State, view: View) -> Option<Fetch> {
    if state.busy {
        return None;
    }
    let cells = |wanted: &NeededCells, from: u64, most: (u32, u32)| Cells {
        measure: view.selection.0,
        reduce: view.selection.1,
        steps: (from, wanted.steps.1),
        ranks: (wanted.ranks.0 as u32, wanted.ranks.1 as u32),
        most,
    };
    let wanted = NeededCells::new(view.steps, view.ranks, view.kept, view.all_ranks, view.pixels)?;
    let missing = match &state.front {
        Some(front) if front.selection == view.selection => wanted.missing(&front.tile, front.upto),
        _ => Missing::All,
    };
    let fetch = match (missing, &state.front) {
        (Missing::All, _) => Some(Fetch::Front(cells(&wanted, wanted.steps.0, wanted.size()))),
        (Missing::From(step), Some(front)) => {
            let columns = (wanted.steps.1 / wanted.per_column - step / wanted.per_column + 1) as u32;
            let ranks = (front.tile.rank, front.tile.rank + front.tile.rows * front.tile.per_row - 1);
            let more = Cells { ranks, ..cells(&wanted, step, (columns, front.tile.rows)) };
            Some(Fetch::More(more, wanted.steps.0))
        }
        _ => behind(state, view),
    };
    state.busy = fetch.is_some();
    fetch
}

/// Requests the coarse tile of the whole run, if the existing one does not cover it.
fn behind(state: &State, view: View) -> Option<Fetch> {
    let all_ranks = Span::new(0.0, view.all_ranks as f64);
    let shows_all = view.steps.len() >= view.kept.len() && view.ranks.len() >= all_ranks.len();
    let fits = state.behind.as_ref().is_some_and(|behind| {
        behind.selection == view.selection
            && (behind.upto as f64 - view.kept.start) * GROWN >= view.kept.len() - 1.0
    });
    if shows_all || fits {
        return None;
    }
    let wanted = NeededCells::new(view.kept, all_ranks, view.kept, view.all_ranks, BEHIND)?;
    Some(Fetch::Behind(Cells {
        measure: view.selection.0,
        reduce: view.selection.1,
        steps: wanted.steps,
        ranks: (wanted.ranks.0 as u32, wanted.ranks.1 as u32),
        most: wanted.size(),
    }))
}

fn take(state: &mut State, fetch: Fetch, answer: Result<Tile, String>) {
    state.busy = false;
    let Ok(tile) = answer else { return };
    match fetch {
        Fetch::Front(cells) => {
            let selection = (cells.measure, cells.reduce);
            if state.behind.as_ref().is_some_and(|behind| behind.selection != selection) {
                state.behind = None;
            }
            state.front = Some(Held { selection, tile, upto: cells.steps.1 });
        }
        Fetch::Behind(cells) => {
            state.behind = Some(Held { selection: (cells.measure, cells.reduce), tile, upto: cells.steps.1 });
        }
        Fetch::More(cells, keep_from) => {
            let joined = state.front.as_mut().is_some_and(|front| {
                front.upto = cells.steps.1;
                join(&mut front.tile, &tile, keep_from)
            });
            if !joined {
                state.front = None;
            }
        }
    }
}
