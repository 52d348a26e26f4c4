//! The cells of the heatmap. They are fetched for the visible range and its margins, at its level of detail, one
//! request at a time.
//!
//! The current cells stay while better ones load. A coarse tile of the whole run is drawn below the fine tile of the
//! visible range, so that panning never shows an empty chart.

use std::sync::Arc;

use leptos::prelude::*;
use leptos::task::spawn_local;
use viz::measure::ColumnEnds;
use viz::raster::Frame;
use viz::raster::heatmap::{self, Heatmap};
use viz::span::Span;
use viz::tiles::{Missing, NeededCells, covered, join, value_at};
use wire::live::tile::{Measure, Reduce, Tile};

use crate::api::{self, Cells, Ranks};
use crate::route::RunId;

/// The number of columns and rows of the coarse tile.
const BACK: (f64, f64) = (512.0, 256.0);
/// The factor by which the run must grow before the coarse tile is fetched again.
const GROWN: f64 = 1.25;

/// What a heatmap shows of each cell, and of which ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// The figure.
    pub measure: Measure,
    /// The reduction of cells.
    pub reduce: Reduce,
    /// The rank of each row; `None` if row n is rank n.
    pub order: Option<Arc<Vec<u32>>>,
}

impl Shown {
    /// Returns the rows from `first` to `last` for a request.
    fn ranks(&self, first: u32, last: u32) -> Ranks {
        match &self.order {
            None => Ranks::Between(first, last),
            Some(order) => {
                let last = (last as usize + 1).min(order.len());
                Ranks::Listed(order.get(first as usize..last).unwrap_or_default().to_vec())
            }
        }
    }
}

/// The range and figure that a heatmap shows. Rows are ranks, or places in an order of ranks.
#[derive(Clone, Debug)]
pub struct View {
    /// The figure, the reduction of cells, and the order of rows.
    pub selection: Shown,
    /// The visible steps.
    pub steps: Span,
    /// The visible ranks.
    pub ranks: Span,
    /// All stored steps.
    pub stored: Span,
    /// The number of rows.
    pub all_ranks: usize,
    /// The size in device pixels, across and down.
    pub pixels: (f64, f64),
}

/// A tile and its content.
struct Held {
    selection: Shown,
    tile: Tile,
    ends: ColumnEnds,
    /// The newest step that the tile covers.
    upto: u64,
}

#[derive(Default)]
struct State {
    front: Option<Held>,
    back: Option<Held>,
    busy: bool,
}

/// A request, and the use of its answer.
struct Fetch {
    kind: Kind,
    selection: Shown,
    cells: Cells,
    /// The first row.
    row: u32,
}

enum Kind {
    Front,
    /// Newer columns. Columns before the step are no longer needed.
    More(u64),
    Back,
}

/// A cell: a range of steps and rows, both ends included, and its value.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The figure, the reduction, and the order of rows.
    pub shown: Shown,
    /// The first and the last step.
    pub steps: (u64, u64),
    /// The first and the last row.
    pub rows: (u32, u32),
    pub value: f32,
}

impl Held {
    fn new(selection: Shown, tile: Tile, upto: u64) -> Self {
        Self { selection, ends: ColumnEnds::new(&tile), tile, upto }
    }
}

impl Cell {
    /// Returns true if the cell is one step of one rank.
    pub fn is_single(&self) -> bool {
        self.steps.0 == self.steps.1 && self.rows.0 == self.rows.1
    }

    /// Returns the request for the single values in the cell.
    pub fn singly(&self) -> Cells {
        let most = ((self.steps.1 - self.steps.0 + 1) as u32, self.rows.1 - self.rows.0 + 1);
        let Shown { measure, reduce, .. } = self.shown;
        Cells { measure, reduce, steps: self.steps, ranks: self.shown.ranks(self.rows.0, self.rows.1), most }
    }
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

    /// Passes the finest tile to `read`, with the ends of its columns; `None` if there is no tile.
    pub fn with<T>(&self, read: impl FnOnce(Option<(&Tile, &ColumnEnds)>) -> T) -> T {
        self.changed.track();
        self.state.with_value(|state| {
            let finest = state.front.as_ref().or(state.back.as_ref());
            read(finest.map(|held| (&held.tile, &held.ends)))
        })
    }

    /// Draws the tiles, the coarse one first and only where the fine one is not.
    pub fn draw(&self, frame: &mut Frame<'_>, map: &Heatmap<'_>) {
        self.changed.track();
        self.state.with_value(|state| {
            if let Some(back) = &state.back {
                let covered = state.front.as_ref().and_then(|front| covered(&front.tile, map.ranks_view));
                heatmap::draw(frame, &back.tile, &Heatmap { covered, ..*map });
            }
            if let Some(front) = &state.front {
                heatmap::draw(frame, &front.tile, map);
            }
        });
    }

    /// Returns the finest cell that contains (step, row): its range of steps and rows, and its value.
    pub fn cell(&self, step: u64, row: u32) -> Option<Cell> {
        self.changed.track();
        self.state.with_value(|state| {
            let held = [&state.front, &state.back].into_iter().flatten();
            let found = held.filter_map(|held| {
                let value = value_at(&held.tile, step, row)?;
                let (per_column, per_row) = (u64::from(held.tile.per_column), held.tile.per_row);
                let (step, row) = (step / per_column * per_column, row / per_row * per_row);
                let (steps, rows) = ((step, step + per_column - 1), (row, row + per_row - 1));
                Some(Cell { shown: held.selection.clone(), steps, rows, value })
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
            // A tile of listed ranks begins at row 0 of its list.
            let answer =
                api::tile(&run, fetch.cells.clone()).await.map(|tile| Tile { rank: fetch.row, ..tile });
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
    let fetch = |kind, rows: (u32, u32), from: u64, to: u64, most| Fetch {
        kind,
        cells: Cells {
            measure: view.selection.measure,
            reduce: view.selection.reduce,
            steps: (from, to),
            ranks: view.selection.ranks(rows.0, rows.1),
            most,
        },
        selection: view.selection.clone(),
        row: rows.0,
    };
    let wanted = NeededCells::new(view.steps, view.ranks, view.stored, view.all_ranks, view.pixels)?;
    let missing = match &state.front {
        Some(front) if front.selection == view.selection => wanted.missing(&front.tile, front.upto),
        _ => Missing::All,
    };
    let found = match (missing, &state.front) {
        (Missing::All, _) => Some(fetch(
            Kind::Front,
            (wanted.ranks.0 as u32, wanted.ranks.1 as u32),
            wanted.steps.0,
            wanted.steps.1,
            wanted.size(),
        )),
        (Missing::From(step), Some(front)) => {
            let columns = (wanted.steps.1 / wanted.per_column - step / wanted.per_column + 1) as u32;
            let rows = (front.tile.rank, front.tile.rank + front.tile.rows * front.tile.per_row - 1);
            let kind = Kind::More(wanted.steps.0);
            Some(fetch(kind, rows, step, wanted.steps.1, (columns, front.tile.rows)))
        }
        _ => needed_back(state, &view).map(|wanted| {
            let rows = (wanted.ranks.0 as u32, wanted.ranks.1 as u32);
            fetch(Kind::Back, rows, wanted.steps.0, wanted.steps.1, wanted.size())
        }),
    };
    state.busy = found.is_some();
    found
}

/// Returns the cells of the coarse tile of the whole run, if the existing one does not cover it.
fn needed_back(state: &State, view: &View) -> Option<NeededCells> {
    let all_ranks = Span::new(0.0, view.all_ranks as f64);
    let shows_all = view.steps.len() >= view.stored.len() && view.ranks.len() >= all_ranks.len();
    let fits = state.back.as_ref().is_some_and(|back| {
        back.selection == view.selection
            && (back.upto as f64 - view.stored.start) * GROWN >= view.stored.len() - 1.0
    });
    if shows_all || fits {
        return None;
    }
    NeededCells::new(view.stored, all_ranks, view.stored, view.all_ranks, BACK)
}

fn take(state: &mut State, fetch: Fetch, answer: Result<Tile, String>) {
    state.busy = false;
    let Ok(tile) = answer else { return };
    let Fetch { kind, selection, cells, .. } = fetch;
    match kind {
        Kind::Front => {
            if state.back.as_ref().is_some_and(|back| back.selection != selection) {
                state.back = None;
            }
            state.front = Some(Held::new(selection, tile, cells.steps.1));
        }
        Kind::Back => state.back = Some(Held::new(selection, tile, cells.steps.1)),
        Kind::More(keep_from) => {
            let joined = state.front.as_mut().is_some_and(|front| {
                let joined = join(&mut front.tile, &tile, keep_from);
                front.ends = ColumnEnds::new(&front.tile);
                front.upto = cells.steps.1;
                joined
            });
            if !joined {
                state.front = None;
            }
        }
    }
}
