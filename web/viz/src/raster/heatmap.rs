//! A heatmap of rank x step cells with a named reduction. Under max, a single slow cell never disappears.

use std::ops::Range;

use wire::live::tile::{Reduce, Tile};

use crate::measure::exceeded_by;
use crate::palette::{CLEAR, Rgba, with_alpha};
use crate::span::Span;

use super::{Frame, whole};

/// What a heatmap shows of its tiles, and how.
#[derive(Clone, Copy)]
pub struct Heatmap<'a> {
    /// The visible steps.
    pub steps_view: Span,
    /// The visible ranks. Rank 0 is at the top.
    pub ranks_view: Span,
    /// Steps that another tile is drawn over. Their pixels are left out.
    pub covered: Option<Span>,
    /// The reduction of a pixel that covers several cells: the tiles' own.
    pub reduce: Reduce,
    /// The values of the first and the last color.
    pub scale: (f32, f32),
    pub colors: &'a [Rgba; 256],
    /// The hatching of unknown cells.
    pub unknown: Rgba,
}

/// The cell size in pixels, in both directions, from which cells are separated by a gap.
const GAP_FROM_PIXELS: f64 = 12.0;

/// The number of pixel columns that are computed before they are written. A frame lies in memory row by row and a tile
/// column by column, so that single pixels would be written far apart. A block's rows are cache lines.
const BLOCK: usize = 16;
/// A pixel whose cells are unknown. No color has this value, because colors of cells are opaque.
const UNKNOWN: Rgba = 1;

/// Draws a tile over the part of the frame that it covers. Pixels outside the tile do not change.
pub fn draw(frame: &mut Frame<'_>, tile: &Tile, map: &Heatmap<'_>) {
    let (width, height) = (frame.width(), frame.height());
    let tile_rows = tile.rows as usize;
    if tile_rows == 0 || map.steps_view.is_empty() || map.ranks_view.is_empty() {
        return;
    }
    let in_cells = |view: Span, first: f64, per_cell: u32| {
        Span::new((view.start - first) / f64::from(per_cell), (view.end - first) / f64::from(per_cell))
    };
    let columns_view = in_cells(map.steps_view, tile.step as f64, tile.per_column);
    let rows_view = in_cells(map.ranks_view, f64::from(tile.rank), tile.per_row);
    let rows = cells(rows_view, height, tile_rows, gaps(rows_view, height));
    let columns = uncovered(cells(columns_view, width, tile.columns(), gaps(columns_view, width)), map);

    let mut shades = Shades::new(tile, map);
    let mut block = vec![CLEAR; BLOCK * height];
    for (at, columns) in columns.chunks(BLOCK).enumerate() {
        if columns.iter().all(Range::is_empty) {
            continue;
        }
        for (x, cells) in columns.iter().enumerate() {
            let pixels = &mut block[x * height..][..height];
            // Where a cell is wider than a pixel, its pixels are the same.
            if x > 0 && columns[x - 1] == *cells {
                let (drawn, pixels) = block.split_at_mut(x * height);
                pixels[..height].copy_from_slice(&drawn[(x - 1) * height..]);
            } else if cells.is_empty() {
                pixels.fill(CLEAR);
            } else {
                shades.column(pixels, cells.clone(), &rows);
            }
        }
        write(frame, &block, at * BLOCK, columns.len(), map.unknown);
    }
}

/// Copies `columns` pixel columns to the frame, from column `left` on.
fn write(frame: &mut Frame<'_>, block: &[Rgba], left: usize, columns: usize, unknown: Rgba) {
    let height = frame.height();
    for y in 0..height {
        let row = &mut frame.row(y)[left..left + columns];
        for (x, pixel) in row.iter_mut().enumerate() {
            match block[x * height + y] {
                CLEAR => {}
                // An unknown value is a pattern and not a color, because it is not a small value.
                UNKNOWN => {
                    let is_dark = ((left + x + y) / 2).is_multiple_of(3);
                    *pixel = with_alpha(unknown, if is_dark { 190 } else { 90 });
                }
                color => *pixel = color,
            }
        }
    }
}

/// The colors of pixel columns.
struct Shades<'a> {
    tile: &'a Tile,
    map: &'a Heatmap<'a>,
    /// One value per row of the tile.
    pooled: Vec<f32>,
    factor: f32,
}

impl<'a> Shades<'a> {
    fn new(tile: &'a Tile, map: &'a Heatmap<'a>) -> Self {
        let factor = 255.0 / (map.scale.1 - map.scale.0).max(f32::MIN_POSITIVE);
        Self { tile, map, pooled: vec![0.0; tile.rows as usize], factor }
    }

    /// Colors the pixels of the tile's `columns`. `rows` are the tile's rows of each pixel.
    fn column(&mut self, pixels: &mut [Rgba], columns: Range<usize>, rows: &[Range<usize>]) {
        pool_columns(&mut self.pooled, self.tile, self.map.reduce, columns);
        for (pixel, rows) in pixels.iter_mut().zip(rows) {
            *pixel = if rows.is_empty() {
                CLEAR
            } else {
                self.color(pool(self.map.reduce, &self.pooled[rows.clone()]))
            };
        }
    }

    fn color(&self, value: f32) -> Rgba {
        if value.is_nan() {
            return UNKNOWN;
        }
        self.map.colors[((value - self.map.scale.0) * self.factor) as u8 as usize]
    }
}

/// Returns the range of cells that each pixel shows; empty before the first and after the last cell, and in gaps.
fn cells(view: Span, pixels: usize, count: usize, is_gap: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let per_pixel = view.len() / pixels as f64;
    let clip = |cell: f64| cell.clamp(0.0, count as f64) as usize;
    let cell = |at: usize| {
        let (first, past) = whole(view.start + at as f64 * per_pixel, per_pixel);
        if is_gap(at) { 0..0 } else { clip(first)..clip(past) }
    };
    (0..pixels).map(cell).collect()
}

/// Empties the pixel columns that another tile is drawn over.
fn uncovered(mut columns: Vec<Range<usize>>, map: &Heatmap<'_>) -> Vec<Range<usize>> {
    if let Some(covered) = map.covered {
        let width = columns.len() as f64;
        let clip = |step: f64| map.steps_view.to_pixel(step, width).clamp(0.0, width);
        let (first, past) = (clip(covered.start).ceil() as usize, clip(covered.end).floor() as usize);
        columns[first..past.max(first)].fill(0..0);
    }
    columns
}

/// Returns the (step, rank) under a pixel, whether or not it is known.
#[must_use]
pub fn cell_at(steps: Span, ranks: Span, x: f64, y: f64, width: f64, height: f64) -> (u64, u32) {
    let step = steps.to_value(x, width).max(0.0);
    let rank = ranks.to_value(y, height).max(0.0);
    (step as u64, rank as u32)
}

/// Returns a test for pixels that are the last of their cell, if cells are large enough to be separated.
fn gaps(view: Span, pixels: usize) -> impl Fn(usize) -> bool {
    let per_pixel = view.len() / pixels as f64;
    let apart = per_pixel * GAP_FROM_PIXELS <= 1.0;
    move |at| {
        let start = view.start + at as f64 * per_pixel;
        apart && (start + 1e-9).floor() < (start + per_pixel + 1e-9).floor()
    }
}

/// Reduces the columns of one pixel to one value per row. Each column is read once, in memory order.
fn pool_columns(pooled: &mut [f32], tile: &Tile, reduce: Reduce, columns: Range<usize>) {
    let rows = pooled.len();
    let column = |at: usize| &tile.values[at * rows..(at + 1) * rows];
    if columns.len() == 1 {
        pooled.copy_from_slice(column(columns.start));
        return;
    }
    match reduce {
        Reduce::Max => {
            pooled.fill(f32::NEG_INFINITY);
            for at in columns {
                for (largest, &value) in pooled.iter_mut().zip(column(at)) {
                    // A comparison with NaN is false, so an unknown value never hides a known one.
                    *largest = if value > *largest { value } else { *largest };
                }
            }
            pooled.iter_mut().filter(|v| **v == f32::NEG_INFINITY).for_each(|v| *v = f32::NAN);
        }
        Reduce::Min => {
            for (row, least) in pooled.iter_mut().enumerate() {
                *least = least_of(columns.clone().map(|at| column(at)[row]));
            }
        }
        Reduce::Mean => {
            for (row, mean) in pooled.iter_mut().enumerate() {
                *mean = mean_of(columns.clone().map(|at| column(at)[row]));
            }
        }
        Reduce::Median => {
            for (row, median) in pooled.iter_mut().enumerate() {
                let values: Vec<f32> = columns.clone().map(|at| column(at)[row]).collect();
                *median = median_of(&values);
            }
        }
    }
}

fn pool(reduce: Reduce, values: &[f32]) -> f32 {
    match (reduce, values) {
        (_, [value]) => *value,
        (Reduce::Max, values) => largest_of(values),
        (Reduce::Min, values) => least_of(values.iter().copied()),
        (Reduce::Mean, values) => mean_of(values.iter().copied()),
        (Reduce::Median, values) => median_of(values),
    }
}

/// Returns the smallest known value; NaN if there are none.
fn least_of(values: impl Iterator<Item = f32>) -> f32 {
    values.fold(f32::NAN, f32::min)
}

/// Returns the largest known value; NaN if there are none.
fn largest_of(values: &[f32]) -> f32 {
    // A comparison with NaN is false, so an unknown value never hides a known one. `f32::max` takes longer in WebAssembly,
    // whose own maximum is NaN if one of its values is.
    let larger = |largest: f32, value: f32| if value > largest { value } else { largest };
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, larger);
    if largest == f32::NEG_INFINITY { f32::NAN } else { largest }
}

/// Returns the median of the known values; NaN if there are none.
fn median_of(values: &[f32]) -> f32 {
    if values.iter().all(|value| value.is_nan()) { f32::NAN } else { exceeded_by(values, 50) }
}

fn mean_of(values: impl Iterator<Item = f32>) -> f32 {
    let (sum, known) =
        values.filter(|v| !v.is_nan()).fold((0.0, 0u32), |(sum, known), v| (sum + v, known + 1));
    if known == 0 { f32::NAN } else { sum / known as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HATCHING: Rgba = 0xff80_8080;

    /// Color `n` is the number n, so that a rendered chart can be read.
    fn numbers() -> [Rgba; 256] {
        std::array::from_fn(|n| 0xff00_0000 | n as u32)
    }

    fn picture(tile: &Tile, map: &Heatmap<'_>, width: usize, height: usize) -> String {
        let mut pixels = vec![0; width * height];
        draw(&mut Frame::new(&mut pixels, width, height), tile, map);
        let letter = |pixel: &Rgba| match *pixel {
            CLEAR => ' ',
            pixel if pixel & 0x00ff_ffff == 0x0080_8080 => '?',
            pixel => char::from_digit(((pixel & 0xff) * 9 + 127) / 255, 10).unwrap_or('!'),
        };
        pixels.chunks(width).map(|row| row.iter().map(letter).collect::<String>() + "\n").collect()
    }

    fn tile(step: u64, rows: u32, values: &[f32]) -> Tile {
        Tile { step, per_column: 1, rank: 0, per_row: 1, rows, values: values.to_vec() }
    }

    fn map<'a>(tile: &Tile, colors: &'a [Rgba; 256]) -> Heatmap<'a> {
        let steps = tile.columns() as f64 * f64::from(tile.per_column);
        let ranks = f64::from(tile.rows * tile.per_row);
        Heatmap {
            steps_view: Span::new(tile.step as f64, tile.step as f64 + steps),
            ranks_view: Span::new(0.0, ranks),
            covered: None,
            reduce: Reduce::Max,
            scale: (0.0, 9.0),
            colors,
            unknown: HATCHING,
        }
    }

    #[test]
    fn one_pixel_per_cell() {
        let colors = numbers();
        let tile = tile(4, 3, &[0.0, 1.0, 2.0, 3.0, 9.0, 20.0, f32::NAN, 5.0, -4.0]);
        assert_eq!(picture(&tile, &map(&tile, &colors), 3, 3), "03?\n195\n290\n");
    }

    #[test]
    fn pixels_outside_the_tile_stay_clear() {
        let colors = numbers();
        let tile = tile(4, 1, &[1.0, 2.0]);
        let wide = Heatmap { steps_view: Span::new(3.0, 7.0), ..map(&tile, &colors) };
        assert_eq!(picture(&tile, &wide, 4, 1), " 12 \n");
    }

    #[test]
    fn covered_steps_are_left_out() {
        let colors = numbers();
        let tile = tile(4, 1, &[1.0, 2.0, 3.0, 4.0]);
        let covered = |start, end| Heatmap { covered: Some(Span::new(start, end)), ..map(&tile, &colors) };
        assert_eq!(picture(&tile, &covered(5.0, 7.0), 4, 1), "1  4\n");
        assert_eq!(picture(&tile, &covered(0.0, 6.0), 4, 1), "  34\n");
        assert_eq!(picture(&tile, &covered(9.0, 12.0), 4, 1), "1234\n");
        // A pixel that is covered in part is drawn, because the other tile may not draw it.
        assert_eq!(picture(&tile, &covered(4.5, 7.0), 4, 1), "1  4\n");
    }

    #[test]
    fn coarse_cells_cover_their_steps_and_ranks() {
        let colors = numbers();
        let tile = Tile { per_column: 2, per_row: 2, ..tile(4, 2, &[1.0, 2.0, 3.0, 4.0]) };
        assert_eq!(picture(&tile, &map(&tile, &colors), 4, 4), "1133\n1133\n2244\n2244\n");
        let part = Heatmap { steps_view: Span::new(6.0, 8.0), ..map(&tile, &colors) };
        assert_eq!(picture(&tile, &part, 2, 2), "33\n44\n");
    }

    #[test]
    fn max_and_mean_differ_and_nan_hides_nothing() {
        let colors = numbers();
        let tile = tile(0, 1, &[1.0, f32::NAN, 3.0, 9.0]);
        let max = map(&tile, &colors);
        assert_eq!(picture(&tile, &max, 2, 1), "19\n");
        assert_ne!(picture(&tile, &Heatmap { reduce: Reduce::Min, ..max }, 2, 1), picture(&tile, &max, 2, 1));
        assert_eq!(picture(&tile, &Heatmap { reduce: Reduce::Mean, ..max }, 2, 1), "16\n");
    }

    #[test]
    fn large_cells_are_separated() {
        let (colors, cells) = (numbers(), tile(0, 2, &[3.0, 6.0]));
        assert_eq!(
            picture(&cells, &map(&cells, &colors), 12, 24),
            [
                "33333333333 \n".repeat(11),
                "            \n".into(),
                "66666666666 \n".repeat(11),
                "            \n".into()
            ]
            .concat()
        );
    }

    proptest! {
        #[test]
        fn a_single_slow_cell_never_disappears(
            columns in 1usize..400, rows in 1usize..200, width in 1usize..160, height in 1usize..120, at in any::<u64>(),
            per_column in 1u32..9, per_row in 1u32..5,
        ) {
            let cell = at as usize % (columns * rows);
            let mut values = vec![1.0; columns * rows];
            values[cell] = 9.0;
            let tile = Tile { per_column, per_row, ..tile(16, rows as u32, &values) };
            let colors = numbers();
            let mut pixels = vec![0; width * height];
            draw(&mut Frame::new(&mut pixels, width, height), &tile, &map(&tile, &colors));
            prop_assert!(pixels.contains(&colors[255]));
        }
    }
}
