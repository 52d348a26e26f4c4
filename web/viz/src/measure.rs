//! The format of the figures of a (step, rank) cell, and the end of their color scale.

use std::ops::Range;

use wire::live::tile::{Measure, Tile};

use crate::ticks;

/// Formats one value of a measure with its unit.
#[must_use]
pub fn write(measure: Measure, value: f32) -> String {
    match measure {
        _ if value.is_nan() => "—".into(),
        Measure::Lateness => units::signed_nanos(f64::from(value)),
        Measure::StepTime | Measure::LocalWork | Measure::Part(_) => units::nanos(f64::from(value)),
    }
}

/// The low and the high end of each column of a tile, from which the color scale is made. They are kept with the tile, so
/// that a drag does not read all cells in every frame.
#[derive(Clone, Debug, Default)]
pub struct ColumnEnds {
    /// A value that nearly all known cells of the column exceed; NaN if none is known.
    low: Vec<f32>,
    /// The largest value; NaN if none is known.
    high: Vec<f32>,
}

impl ColumnEnds {
    /// Reads the columns of a tile.
    #[must_use]
    pub fn new(tile: &Tile) -> Self {
        let columns = || tile.values.chunks((tile.rows as usize).max(1));
        let low = |column: &[f32]| match column.iter().all(|value| value.is_nan()) {
            true => f32::NAN,
            false => exceeded_by(column, 98),
        };
        Self {
            low: columns().map(low).collect(),
            high: columns().map(|column| column.iter().copied().fold(f32::NAN, f32::max)).collect(),
        }
    }

    /// Returns the end of the color scale over some columns: a round number that the slowest row of most columns stays
    /// below. One rank that is always late sets the scale, whatever the number of ranks. One extreme step does not, and
    /// has the last color. The end is at least `floor`, so that noise stays dark.
    #[must_use]
    pub fn scale_end(&self, columns: Range<usize>, floor: f32) -> f32 {
        ticks::ceiling(f64::from(exceeded_by(&self.high[columns], 5).max(floor))) as f32
    }

    /// Returns the beginning of the color scale: 0, or for a measure that is never near 0 a round number that most cells
    /// exceed, so that differences between ranks show.
    #[must_use]
    pub fn scale_start(&self, measure: Measure, columns: Range<usize>) -> f32 {
        match measure {
            Measure::LocalWork | Measure::StepTime => {
                let low = exceeded_by(&self.low[columns], 98);
                let step = ticks::spacing(f64::from(low), 10);
                if step > 0.0 { ((f64::from(low) / step - 0.5).floor().max(0.0) * step) as f32 } else { 0.0 }
            }
            Measure::Lateness | Measure::Part(_) => 0.0,
        }
    }
}

/// Returns a value that about `percent` % of the known values exceed; 0 if no value is known.
#[must_use]
pub fn exceeded_by(values: &[f32], percent: usize) -> f32 {
    let mut known: Vec<f32> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    if known.is_empty() {
        return 0.0;
    }
    let at = (known.len() - 1) * (100 - percent) / 100;
    let (_, value, _) = known.select_nth_unstable_by(at, f32::total_cmp);
    *value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(rows: u32, values: Vec<f32>) -> Tile {
        Tile { step: 0, per_column: 1, rank: 0, per_row: 1, rows, values }
    }

    #[test]
    fn one_slow_rank_sets_the_scale_and_one_extreme_step_does_not() {
        let (steps, ranks) = (100, 64);
        let mut tile = tile(ranks as u32, vec![3.0; steps * ranks]);
        tile.values[17] = 900.0;
        assert_eq!(ColumnEnds::new(&tile).scale_end(0..steps, 0.0), 3.0);
        tile.values.iter_mut().skip(5).step_by(ranks).for_each(|v| *v = 50.0);
        assert_eq!(ColumnEnds::new(&tile).scale_end(0..steps, 0.0), 60.0);
    }

    #[test]
    fn a_measure_that_is_never_small_does_not_begin_at_zero() {
        let mut tile = tile(4, vec![32.0e6; 400]);
        tile.values[7] = 50.0e6;
        let start = |measure| ColumnEnds::new(&tile).scale_start(measure, 0..100);
        assert!((20.0e6..32.0e6).contains(&start(Measure::LocalWork)), "{}", start(Measure::LocalWork));
        assert_eq!(start(Measure::Lateness), 0.0);
    }

    #[test]
    fn noise_stays_dark() {
        assert_eq!(ColumnEnds::new(&tile(1, vec![0.01, f32::NAN])).scale_end(0..2, 3.0), 3.0);
        assert_eq!(ColumnEnds::new(&tile(1, vec![f32::NAN])).scale_end(0..1, 0.0), 1.0);
    }
}
