//! Rank x step cells by colour, with a named reduction: under max, a lone slow cell never disappears.

use crate::palette::{Rgba, with_alpha};
use crate::span::Span;

use super::{Frame, columns, whole};

/// What a pixel shows of the cells it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// The largest. It biases towards bright as one zooms out; the legend must name it.
    Max,
    /// The mean. It hides outliers.
    Mean,
}

impl Pool {
    /// The name in the legend and in a URL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Mean => "mean",
        }
    }
}

/// What to draw.
pub struct Heatmap<'a> {
    /// Step numbers, ascending.
    pub step: &'a [u64],
    /// `step * ranks + rank`; NaN is unknown.
    pub values: &'a [f32],
    /// How many ranks.
    pub ranks: usize,
    /// Visible steps.
    pub steps_view: Span,
    /// Visible ranks; rank 0 is on top.
    pub ranks_view: Span,
    /// The reduction.
    pub pool: Pool,
    /// Values that get the first and the last colour.
    pub scale: (f32, f32),
    /// The colours.
    pub colours: &'a [Rgba; 256],
    /// Hatching of what is not known.
    pub unknown: Rgba,
}

/// A cell is set off from its neighbours where it is at least this many pixels wide and high.
const GAP_FROM_PIXELS: f64 = 7.0;

/// Draws the map over the whole frame.
pub fn draw(frame: &mut Frame<'_>, map: &Heatmap<'_>) {
    let (width, height) = (frame.width(), frame.height());
    if map.ranks == 0 || map.steps_view.is_empty() || map.ranks_view.is_empty() {
        return;
    }
    let per_row = map.ranks_view.len() / height as f64;
    let rows: Vec<(usize, usize)> = (0..height)
        .map(|y| {
            let (first, past) = whole(map.ranks_view.start + y as f64 * per_row, per_row);
            let clip = |rank: f64| rank.clamp(0.0, map.ranks as f64) as usize;
            (clip(first), clip(past))
        })
        .collect();
    let gap_right = gaps(map.steps_view, width);
    let gap_below = gaps(map.ranks_view, height);

    let factor = 255.0 / (map.scale.1 - map.scale.0).max(f32::MIN_POSITIVE);
    let mut pooled = vec![0.0; map.ranks];
    for (x, steps) in columns(map.step, map.steps_view, width).enumerate() {
        if steps.is_empty() || gap_right(x) {
            continue;
        }
        pool_steps(&mut pooled, map, steps);
        for (y, &(first, past)) in rows.iter().enumerate() {
            if first >= past || gap_below(y) {
                continue;
            }
            let value = pool(map.pool, &pooled[first..past]);
            frame.row(y)[x] = if value.is_nan() {
                // A pattern, not a colour: unknown is not a small value.
                with_alpha(map.unknown, if (x + y) / 2 % 3 == 0 { 190 } else { 90 })
            } else {
                map.colours[((value - map.scale.0) * factor) as u8 as usize]
            };
        }
    }
}

/// The (step, rank) under a pixel, whether or not it is known.
#[must_use]
pub fn cell_at(steps: Span, ranks: Span, x: f64, y: f64, width: f64, height: f64) -> (u64, u32) {
    let step = steps.to_value(x, width).max(0.0);
    let rank = ranks.to_value(y, height).max(0.0);
    (step as u64, rank as u32)
}

/// Says which pixels are the last of their cell, where cells are large enough to be set apart.
fn gaps(view: Span, pixels: usize) -> impl Fn(usize) -> bool {
    let per_pixel = view.len() / pixels as f64;
    let apart = per_pixel * GAP_FROM_PIXELS <= 1.0;
    move |at| {
        let start = view.start + at as f64 * per_pixel;
        apart && (start + 1e-9).floor() < (start + per_pixel + 1e-9).floor()
    }
}

/// Reduces the steps of one pixel column to one value a rank; each step is read once, in memory order.
fn pool_steps(pooled: &mut [f32], map: &Heatmap<'_>, steps: std::ops::Range<usize>) {
    let column = |step: usize| &map.values[step * map.ranks..(step + 1) * map.ranks];
    if steps.len() == 1 {
        pooled.copy_from_slice(column(steps.start));
        return;
    }
    match map.pool {
        Pool::Max => {
            pooled.fill(f32::NEG_INFINITY);
            for step in steps {
                for (largest, &value) in pooled.iter_mut().zip(column(step)) {
                    // A comparison with NaN is false: what is unknown never hides what is known.
                    *largest = if value > *largest { value } else { *largest };
                }
            }
            pooled.iter_mut().filter(|v| **v == f32::NEG_INFINITY).for_each(|v| *v = f32::NAN);
        }
        Pool::Mean => {
            for (rank, mean) in pooled.iter_mut().enumerate() {
                *mean = mean_of(steps.clone().map(|step| column(step)[rank]));
            }
        }
    }
}

fn pool(pool: Pool, values: &[f32]) -> f32 {
    match (pool, values) {
        (_, [one]) => *one,
        (Pool::Max, values) => values.iter().copied().fold(f32::NAN, f32::max),
        (Pool::Mean, values) => mean_of(values.iter().copied()),
    }
}

fn mean_of(values: impl Iterator<Item = f32>) -> f32 {
    let (sum, known) =
        values.filter(|v| !v.is_nan()).fold((0.0, 0u32), |(sum, known), v| (sum + v, known + 1));
    if known == 0 { f32::NAN } else { sum / known as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::palette::CLEAR;
    use proptest::prelude::*;

    const UNKNOWN: Rgba = 0xff80_8080;

    /// Colour `n` is the number n, so that a picture can be read.
    fn numbers() -> [Rgba; 256] {
        std::array::from_fn(|n| 0xff00_0000 | n as u32)
    }

    fn picture(map: &Heatmap<'_>, width: usize, height: usize) -> String {
        let mut pixels = vec![0; width * height];
        draw(&mut Frame::new(&mut pixels, width, height), map);
        let letter = |pixel: &Rgba| match *pixel {
            CLEAR => ' ',
            pixel if pixel & 0x00ff_ffff == 0x0080_8080 => '?',
            pixel => char::from_digit(((pixel & 0xff) * 9 + 127) / 255, 10).unwrap_or('!'),
        };
        pixels.chunks(width).map(|row| row.iter().map(letter).collect::<String>() + "\n").collect()
    }

    fn map<'a>(step: &'a [u64], values: &'a [f32], ranks: usize, colours: &'a [Rgba; 256]) -> Heatmap<'a> {
        Heatmap {
            step,
            values,
            ranks,
            steps_view: Span::new(step[0] as f64, step[step.len() - 1] as f64 + 1.0),
            ranks_view: Span::new(0.0, ranks as f64),
            pool: Pool::Max,
            scale: (0.0, 9.0),
            colours,
            unknown: UNKNOWN,
        }
    }

    #[test]
    fn one_pixel_a_cell() {
        let colours = numbers();
        let values = [0.0, 1.0, 2.0, 3.0, 9.0, 20.0, f32::NAN, 5.0, -4.0];
        assert_eq!(picture(&map(&[4, 5, 6], &values, 3, &colours), 3, 3), "03?\n195\n290\n");
    }

    #[test]
    fn a_step_that_is_not_there_leaves_a_gap() {
        let colours = numbers();
        assert_eq!(picture(&map(&[4, 6], &[1.0, 2.0], 1, &colours), 3, 1), "1 2\n");
    }

    #[test]
    fn max_and_mean_differ_and_nan_hides_nothing() {
        let colours = numbers();
        let values = [1.0, f32::NAN, 3.0, 9.0];
        let max = map(&[0, 1, 2, 3], &values, 1, &colours);
        assert_eq!(picture(&max, 2, 1), "19\n");
        assert_eq!(picture(&Heatmap { pool: Pool::Mean, ..max }, 2, 1), "16\n");
    }

    #[test]
    fn large_cells_stand_apart() {
        let colours = numbers();
        assert_eq!(
            picture(&map(&[0], &[3.0, 6.0], 2, &colours), 8, 14),
            ["3333333 \n".repeat(6), "        \n".into(), "6666666 \n".repeat(6), "        \n".into()]
                .concat()
        );
    }

    proptest! {
        #[test]
        fn a_lone_slow_cell_never_disappears(
            steps in 1usize..400, ranks in 1usize..200, width in 1usize..160, height in 1usize..120, at in any::<u64>(),
        ) {
            let cell = at as usize % (steps * ranks);
            let mut values = vec![1.0; steps * ranks];
            values[cell] = 9.0;
            let step: Vec<u64> = (0..steps as u64).collect();
            let colours = numbers();
            let mut pixels = vec![0; width * height];
            draw(&mut Frame::new(&mut pixels, width, height), &map(&step, &values, ranks, &colours));
            prop_assert!(pixels.contains(&colours[255]));
        }
    }
}
