//! The cells of one row as the points of a line.

use wire::live::tile::Tile;

/// Values of some steps, in ascending order. NaN is a gap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Points {
    /// The first step that each value stands for.
    pub step: Vec<u64>,
    pub values: Vec<f32>,
}

impl Points {
    /// Returns the points of a tile with one row; `None` if the tile has more rows, or if no value is known.
    #[must_use]
    pub fn from_tile(tile: &Tile) -> Option<Self> {
        let known = tile.rows == 1 && tile.values.iter().any(|value| !value.is_nan());
        let step = |column: usize| tile.step + column as u64 * u64::from(tile.per_column);
        known.then(|| Self { step: (0..tile.columns()).map(step).collect(), values: tile.values.clone() })
    }

    /// Returns the value of a step: that of the last point that does not lie behind it. `None` if it is not known.
    #[must_use]
    pub fn value_at(&self, step: u64) -> Option<f32> {
        let end = self.step.partition_point(|&at| at <= step);
        self.values.get(end.checked_sub(1)?).copied().filter(|value| !value.is_nan())
    }

    /// Returns the largest value of the steps from `first` to `last`; `None` if none is known.
    #[must_use]
    pub fn largest(&self, first: f64, last: f64) -> Option<f32> {
        let first_index = self.step.partition_point(|&at| at as f64 <= first).saturating_sub(1);
        let end_index = self.step.partition_point(|&at| at as f64 <= last);
        let values = self.values.get(first_index..end_index)?.iter().copied();
        values.filter(|value| !value.is_nan()).max_by(f32::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_value_of_the_cell_that_it_lies_in() {
        let tile =
            Tile { step: 8, per_column: 4, rank: 2, per_row: 1, rows: 1, values: vec![1.0, f32::NAN, 3.0] };
        let points = Points::from_tile(&tile).unwrap();
        assert_eq!(points.step, [8, 12, 16]);
        assert_eq!(
            [7, 8, 11, 12, 16, 40].map(|step| points.value_at(step)),
            [None, Some(1.0), Some(1.0), None, Some(3.0), Some(3.0)]
        );
        assert_eq!([points.largest(0.0, 13.0), points.largest(9.0, 18.0)], [Some(1.0), Some(3.0)]);
        assert_eq!(points.largest(12.0, 13.0), None);
        assert_eq!(Points::from_tile(&Tile { rows: 3, ..tile.clone() }), None, "three rows are not a line");
        assert_eq!(Points::from_tile(&Tile { values: vec![f32::NAN], ..tile }), None);
    }
}
