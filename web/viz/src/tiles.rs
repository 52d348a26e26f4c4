//! The cells that a heatmap needs at its level of detail: which are missing, and how new columns are appended.

use wire::live::tile::Tile;

use crate::span::Span;

/// The margin that is fetched beyond each edge of the view, as a share of the view. Panning within it needs no request.
const MARGIN: f64 = 0.5;

/// The first and the last element, both included.
pub type Ends = (u64, u64);

/// The cells that a view needs: its surroundings, at the coarsest level that still has one cell per pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeededCells {
    /// The number of steps in a column, a power of two.
    pub per_column: u64,
    /// The number of ranks in a row, a power of two.
    pub per_row: u64,
    /// The first and the last step, with margins.
    pub steps: Ends,
    /// The first and the last rank, with margins.
    pub ranks: Ends,
    /// The first and the last visible step.
    pub visible_steps: Ends,
    /// The first and the last visible rank.
    pub visible_ranks: Ends,
}

/// The missing part of the needed cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No visible cell is missing.
    Nothing,
    /// Columns from this step on are missing, because the run has continued.
    From(u64),
    /// All cells are missing, because the level or the place has changed.
    All,
}

impl NeededCells {
    /// Returns the cells needed to show `steps` x `ranks` on the given pixels, if the steps `kept` and `all_ranks`
    /// ranks exist. Returns `None` if nothing that exists is visible.
    #[must_use]
    pub fn new(
        steps: Span,
        ranks: Span,
        kept: Span,
        all_ranks: usize,
        (width, height): (f64, f64),
    ) -> Option<Self> {
        let (per_column, steps, visible_steps) = axis(steps, kept, width)?;
        let (per_row, ranks, visible_ranks) = axis(ranks, Span::new(0.0, all_ranks as f64), height)?;
        Some(Self { per_column, per_row, steps, ranks, visible_steps, visible_ranks })
    }

    /// Returns the number of columns and rows of a tile with all needed cells.
    #[must_use]
    pub fn size(&self) -> (u32, u32) {
        let cells = |(first, last): Ends, per: u64| (last / per - first / per + 1) as u32;
        (cells(self.steps, self.per_column), cells(self.ranks, self.per_row))
    }

    /// Returns the part that is missing in `tile`, which covers steps up to `upto`.
    #[must_use]
    pub fn missing(&self, tile: &Tile, upto: u64) -> Missing {
        let (first, last) = self.visible_ranks;
        let rows_end = u64::from(tile.rank) + u64::from(tile.rows) * u64::from(tile.per_row);
        let same_level =
            u64::from(tile.per_column) == self.per_column && u64::from(tile.per_row) == self.per_row;
        let rows_fit = u64::from(tile.rank) <= first && last < rows_end;
        if !same_level || !rows_fit || tile.step > self.visible_steps.0 || upto + 1 < self.visible_steps.0 {
            Missing::All
        } else if upto >= self.visible_steps.1 {
            Missing::Nothing
        } else {
            // The last column may have been incomplete.
            Missing::From((upto + 1) / self.per_column * self.per_column)
        }
    }
}

/// Returns the level of one axis, its cells with margins, and its visible cells.
fn axis(view: Span, exists: Span, pixels: f64) -> Option<(u64, Ends, Ends)> {
    let clip = |from: f64, to: f64| {
        let (from, to) = (from.max(exists.start).floor(), to.min(exists.end).ceil());
        (to > from).then(|| (from as u64, to as u64 - 1))
    };
    let visible = clip(view.start, view.end)?;
    let mut per_cell = 1;
    while view.len() / per_cell as f64 > pixels.max(1.0) {
        per_cell *= 2;
    }
    let margin = view.len() * MARGIN;
    let (first, last) = clip(view.start - margin, view.end + margin)?;
    Some((per_cell, (first / per_cell * per_cell, last), visible))
}

/// Returns the steps of which a tile has all `ranks`; `None` if it lacks one.
#[must_use]
pub fn covered(tile: &Tile, ranks: Span) -> Option<Span> {
    let (first, rows) = (f64::from(tile.rank), f64::from(tile.rows) * f64::from(tile.per_row));
    let steps = tile.columns() as f64 * f64::from(tile.per_column);
    let has_all = first <= ranks.start && ranks.end <= first + rows;
    has_all.then(|| Span::new(tile.step as f64, tile.step as f64 + steps))
}

/// Appends newer columns. Repeated columns are replaced, and columns before `keep_from` are dropped. Returns false if
/// the columns have another level or leave a gap.
pub fn join(tile: &mut Tile, newer: &Tile, keep_from: u64) -> bool {
    let same = (tile.per_column, tile.rank, tile.per_row, tile.rows)
        == (newer.per_column, newer.rank, newer.per_row, newer.rows);
    let per_column = u64::from(tile.per_column);
    let end = tile.step + tile.columns() as u64 * per_column;
    if !same || newer.step < tile.step || newer.step > end {
        return false;
    }
    let rows = tile.rows as usize;
    tile.values.truncate(((newer.step - tile.step) / per_column) as usize * rows);
    tile.values.extend_from_slice(&newer.values);
    let gone = keep_from.saturating_sub(tile.step) / per_column;
    let gone = (gone as usize).min(tile.columns().saturating_sub(1));
    // Many columns are dropped at once, because the rest is moved each time.
    if gone * 2 > tile.columns() {
        tile.values.drain(..gone * rows);
        tile.step += gone as u64 * per_column;
    }
    true
}

/// Returns the value of the cell that contains (step, rank), if the tile covers it.
#[must_use]
pub fn value_at(tile: &Tile, step: u64, rank: u32) -> Option<f32> {
    let column = step.checked_sub(tile.step)? / u64::from(tile.per_column);
    let row = rank.checked_sub(tile.rank)? / tile.per_row;
    if row >= tile.rows {
        return None;
    }
    tile.values.get(column as usize * tile.rows as usize + row as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(steps: (f64, f64), ranks: (f64, f64), pixels: (f64, f64)) -> NeededCells {
        let span = |(start, end)| Span::new(start, end);
        NeededCells::new(span(steps), span(ranks), Span::new(0.0, 2000.0), 1024, pixels).unwrap()
    }

    fn tile(step: u64, per_column: u32, columns: usize, rows: u32, value: f32) -> Tile {
        Tile { step, per_column, rank: 0, per_row: 2, rows, values: vec![value; columns * rows as usize] }
    }

    #[test]
    fn the_level_has_at_most_one_cell_per_pixel() {
        let all = wanted((0.0, 2000.0), (0.0, 1024.0), (1200.0, 600.0));
        assert_eq!((all.per_column, all.per_row, all.size()), (2, 2, (1000, 512)));
        let near = wanted((1000.0, 1100.0), (10.0, 20.0), (1200.0, 600.0));
        assert_eq!((near.per_column, near.per_row), (1, 1));
        assert_eq!((near.steps, near.visible_steps), ((950, 1149), (1000, 1099)));
        assert_eq!((near.ranks, near.visible_ranks), ((5, 24), (10, 19)));
        assert_eq!(
            NeededCells::new(Span::new(5.0, 9.0), Span::new(0.0, 4.0), Span::new(0.0, 0.0), 4, (9.0, 9.0)),
            None
        );
    }

    #[test]
    fn missing_cells_are_found() {
        let want = wanted((100.0, 300.0), (0.0, 1024.0), (100.0, 600.0));
        assert_eq!((want.per_column, want.per_row), (2, 2));
        let have = |step: u64, upto: u64| want.missing(&tile(step, 2, 100, 512, 1.0), upto);
        assert_eq!(have(0, 400), Missing::Nothing);
        assert_eq!(have(50, 250), Missing::From(250), "the column of steps 250 and 251 was incomplete");
        assert_eq!(have(50, 251), Missing::From(252));
        assert_eq!(have(150, 400), Missing::All);
        assert_eq!(want.missing(&tile(0, 4, 100, 512, 1.0), 400), Missing::All);
        assert_eq!(want.missing(&tile(0, 2, 300, 256, 1.0), 400), Missing::All, "too few rows");
    }

    #[test]
    fn a_tile_without_some_visible_rank_covers_nothing() {
        let tile = Tile { rank: 10, ..tile(40, 2, 5, 3, 1.0) };
        assert_eq!(covered(&tile, Span::new(10.0, 16.0)), Some(Span::new(40.0, 50.0)));
        assert_eq!(covered(&tile, Span::new(9.0, 12.0)), None);
        assert_eq!(covered(&tile, Span::new(12.0, 17.0)), None);
    }

    #[test]
    fn newer_columns_replace_repeated_ones() {
        let mut old = tile(10, 2, 3, 1, 1.0);
        assert!(join(&mut old, &tile(14, 2, 2, 1, 5.0), 0));
        assert_eq!(old.values, [1.0, 1.0, 5.0, 5.0]);
        assert!(!join(&mut old, &tile(30, 2, 1, 1, 5.0), 0), "a gap");
        assert!(!join(&mut old, &tile(14, 1, 1, 1, 5.0), 0), "another level");
        assert!(join(&mut old, &tile(18, 2, 1, 1, 7.0), 16));
        assert_eq!((old.step, old.values.as_slice()), (16, [5.0, 7.0].as_slice()));
        assert_eq!(
            (value_at(&old, 19, 1), value_at(&old, 15, 0), value_at(&old, 18, 2)),
            (Some(7.0), None, None)
        );
    }
}
