//! The format of the figures of a (step, rank) cell, and the end of their color scale.

use std::ops::Range;

use wire::live::tile::{Measure, Tile};
use wire::usage::{Usage, UsageUnit};

use crate::ticks;

/// Formats one value of a measure with its unit.
#[must_use]
pub fn write(measure: Measure, value: f32) -> String {
    match measure {
        _ if value.is_nan() => "—".into(),
        Measure::Lateness => units::signed_nanos(f64::from(value)),
        Measure::StepTime | Measure::LocalWork | Measure::Part(_) => units::nanos(f64::from(value)),
        Measure::Usage(usage) => write_usage(usage, f64::from(value)),
    }
}

fn write_usage(usage: Usage, value: f64) -> String {
    match usage.unit() {
        UsageUnit::Share => units::percent(value),
        UsageUnit::Cores if value == 1.0 => "1 core".into(),
        UsageUnit::Cores => format!("{} cores", units::significant(value)),
        UsageUnit::Threads if value == 1.0 => "1 thread".into(),
        UsageUnit::Threads => format!("{} threads", units::significant(value)),
        UsageUnit::Hertz => format!("{} MHz", units::fixed(value / 1e6, 0)),
        UsageUnit::Watts => format!("{} W", units::fixed(value, 0)),
        UsageUnit::Celsius => format!("{} °C", units::fixed(value, 0)),
        UsageUnit::Bytes => units::bytes(value as u64),
        UsageUnit::BytesPerSecond => units::rate(value, "B/s"),
        UsageUnit::PerSecond => format!("{}/s", units::fixed(value, 0)),
        UsageUnit::Count => units::count(value as u64),
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
    pub fn scale_end(&self, measure: Measure, columns: Range<usize>, floor: f32) -> f32 {
        if is_share(measure) {
            return 1.0;
        }
        ticks::ceiling(f64::from(exceeded_by(&self.high[columns], 5).max(floor))) as f32
    }

    /// Returns the beginning of the color scale: 0, or for a measure that is never near 0 a round number that most cells
    /// exceed, so that differences between ranks show.
    #[must_use]
    pub fn scale_start(&self, measure: Measure, columns: Range<usize>) -> f32 {
        match measure {
            Measure::LocalWork
            | Measure::StepTime
            | Measure::Usage(Usage::SmClock | Usage::Power | Usage::Temperature) => {
                let low = exceeded_by(&self.low[columns], 98);
                let step = ticks::spacing(f64::from(low), 10);
                if step > 0.0 { ((f64::from(low) / step - 0.5).floor().max(0.0) * step) as f32 } else { 0.0 }
            }
            Measure::Lateness | Measure::Part(_) | Measure::Usage(_) => 0.0,
        }
    }
}

/// Returns true for a share, whose scale is the same for all shares: 0 to 1.
fn is_share(measure: Measure) -> bool {
    matches!(measure, Measure::Usage(usage) if usage.unit() == UsageUnit::Share)
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
        assert_eq!(ColumnEnds::new(&tile).scale_end(Measure::Lateness, 0..steps, 0.0), 3.0);
        tile.values.iter_mut().skip(5).step_by(ranks).for_each(|v| *v = 50.0);
        assert_eq!(ColumnEnds::new(&tile).scale_end(Measure::Lateness, 0..steps, 0.0), 60.0);
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
    fn shares_have_one_scale_and_clocks_begin_near_the_usual_one() {
        let tile = tile(4, vec![0.02; 400]);
        let ends = ColumnEnds::new(&tile);
        let busy = Measure::Usage(Usage::DeviceBusy);
        assert_eq!((ends.scale_start(busy, 0..100), ends.scale_end(busy, 0..100, 0.0)), (0.0, 1.0));
        let tile = super::tests::tile(4, vec![1.98e9; 400]);
        assert!(ColumnEnds::new(&tile).scale_start(Measure::Usage(Usage::SmClock), 0..100) > 1.5e9);
    }

    #[test]
    fn usage_is_written_in_its_unit() {
        let written = |usage, value| write(Measure::Usage(usage), value);
        assert_eq!(written(Usage::DeviceBusy, 0.856), "85.6 %");
        assert_eq!(written(Usage::ProcessorUse, 1.02), "1.02 cores");
        assert_eq!(written(Usage::SmClock, 1.98e9), "1,980 MHz");
        assert_eq!(written(Usage::Power, 468.4), "468 W");
        assert_eq!(written(Usage::NetworkTraffic, 1.23e9), "1.23 GB/s");
        assert_eq!(written(Usage::ContextSwitches, 1_234.4), "1,234/s");
        assert_eq!(written(Usage::Power, f32::NAN), "—");
    }

    #[test]
    fn noise_stays_dark() {
        assert_eq!(
            ColumnEnds::new(&tile(1, vec![0.01, f32::NAN])).scale_end(Measure::Lateness, 0..2, 3.0),
            3.0
        );
        assert_eq!(ColumnEnds::new(&tile(1, vec![f32::NAN])).scale_end(Measure::Lateness, 0..1, 0.0), 1.0);
    }
}
