//! The heatmap's cells: fetched for what is shown and its margins, at its level of detail, one request at a time.
//!
//! What is here stays on the page while better cells come: a coarse tile of the whole run lies behind the fine
//! one of what is shown, so that one can pan anywhere without seeing nothing.

use leptos::task::spawn_local;
use viz::span::Span;
use viz::tiles::{Missing, Wanted, join, value_at};
use wire::live::tile::{Measure, Reduce, Tile};

use crate::api::{self, Cells};
use crate::cells::{Kept, Var};

/// Columns and rows of the tile behind.
const BEHIND: (f64, f64) = (512.0, 256.0);
/// It is fetched again when the run has grown by this factor.
const GROWN: f64 = 1.25;

/// What a heatmap shows.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Which figure, and how cells are pooled.
    pub look: (Measure, Reduce),
    /// Visible steps.
    pub steps: Span,
    /// Visible ranks.
    pub ranks: Span,
    /// Steps that exist.
    pub kept: Span,
    /// Ranks that exist.
    pub all_ranks: usize,
    /// Device pixels, across and down.
    pub pixels: (f64, f64),
}

/// A tile, and what it shows.
struct Held {
    look: (Measure, Reduce),
    tile: Tile,
    /// It knows steps up to here.
    upto: u64,
}

#[derive(Default)]
struct State {
    front: Option<Held>,
    behind: Option<Held>,
    busy: bool,
}

/// A request, and what becomes of its answer.
enum Fetch {
    Front(Cells),
    /// Newer columns; those before the step are no longer needed.
    More(Cells, u64),
    Behind(Cells),
}

/// The cells of one heatmap.
#[derive(Clone, Copy)]
pub struct Tiles {
    run: Kept<String>,
    state: Kept<State>,
    /// Changes whenever there is more to draw.
    pub changed: Var<u32>,
    /// Why there are no cells.
    pub error: Var<Option<String>>,
}

impl Tiles {
    /// None yet.
    pub fn new(run: String) -> Self {
        Self {
            run: Kept::new(run),
            state: Kept::new(State::default()),
            changed: Var::new(0),
            error: Var::new(None),
        }
    }

    /// The tiles to draw, the one behind first.
    pub fn with<T>(&self, read: impl FnOnce(&[&Tile]) -> T) -> T {
        self.changed.track();
        self.state.with(|state| {
            let held: Vec<&Tile> =
                [&state.behind, &state.front].into_iter().flatten().map(|h| &h.tile).collect();
            read(&held)
        })
    }

    /// The finest cell that holds (step, rank): the steps and ranks it covers, and its value.
    pub fn cell(&self, step: u64, rank: u32) -> Option<(Cells, f32)> {
        self.changed.track();
        self.state.with(|state| {
            let held = [&state.front, &state.behind].into_iter().flatten();
            let found = held.filter_map(|held| {
                let value = value_at(&held.tile, step, rank)?;
                let (per_column, per_row) = (u64::from(held.tile.per_column), held.tile.per_row);
                let (step, rank) = (step / per_column * per_column, rank / per_row * per_row);
                let cells = Cells {
                    measure: held.look.0,
                    reduce: held.look.1,
                    steps: (step, step + per_column - 1),
                    ranks: (rank, rank + per_row - 1),
                    most: (held.tile.per_column, per_row),
                };
                Some((cells, value))
            });
            found.into_iter().next()
        })
    }

    /// Sees to it that what `view` shows is here; returns at once, and [`Self::changed`] tells of what came.
    pub fn ensure(&self, view: View) {
        let Some(fetch) = self.state.try_update(|state| next(state, view)).flatten() else { return };
        let tiles = *self;
        let run = self.run.get();
        spawn_local(async move {
            let (Fetch::Front(cells) | Fetch::More(cells, _) | Fetch::Behind(cells)) = fetch;
            let answer = api::tile(&run, cells).await;
            let error = answer.as_ref().err().cloned();
            // The view may be gone by now.
            if tiles.state.try_update(|state| take(state, fetch, answer)).is_some() {
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
    let cells = |wanted: &Wanted, from: u64, most: (u32, u32)| Cells {
        measure: view.look.0,
        reduce: view.look.1,
        steps: (from, wanted.steps.1),
        ranks: (wanted.ranks.0 as u32, wanted.ranks.1 as u32),
        most,
    };
    let wanted = Wanted::new(view.steps, view.ranks, view.kept, view.all_ranks, view.pixels)?;
    let missing = match &state.front {
        Some(front) if front.look == view.look => wanted.missing(&front.tile, front.upto),
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

/// The whole run, when what is behind is not it any more.
fn behind(state: &State, view: View) -> Option<Fetch> {
    let all_ranks = Span::new(0.0, view.all_ranks as f64);
    let shows_all = view.steps.len() >= view.kept.len() && view.ranks.len() >= all_ranks.len();
    let fits = state.behind.as_ref().is_some_and(|behind| {
        behind.look == view.look && (behind.upto as f64 - view.kept.start) * GROWN >= view.kept.len() - 1.0
    });
    if shows_all || fits {
        return None;
    }
    let wanted = Wanted::new(view.kept, all_ranks, view.kept, view.all_ranks, BEHIND)?;
    Some(Fetch::Behind(Cells {
        measure: view.look.0,
        reduce: view.look.1,
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
            let look = (cells.measure, cells.reduce);
            if state.behind.as_ref().is_some_and(|behind| behind.look != look) {
                state.behind = None;
            }
            state.front = Some(Held { look, tile, upto: cells.steps.1 });
        }
        Fetch::Behind(cells) => {
            state.behind = Some(Held { look: (cells.measure, cells.reduce), tile, upto: cells.steps.1 });
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
