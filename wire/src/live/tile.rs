//! A rectangle of (step, rank) cells at a level of detail: what a heatmap draws, whatever the size of the run.

use super::frame::frame_codec;
use super::{KIND_TILE, Part};

/// Cells of a tile at most: 8 MiB.
pub const MAX_CELLS: usize = 2 << 20;

/// What a cell is looked at for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// How much later than the median rank it started its collectives.
    Lateness,
    /// Its own step time.
    StepTime,
    /// One part of its ledger.
    Part(Part),
}

impl Measure {
    /// All measures, in the order they are offered.
    pub const ALL: [Self; 10] = [
        Self::Lateness,
        Self::StepTime,
        Self::Part(Part::ExposedWait),
        Self::Part(Part::ExposedTransfer),
        Self::Part(Part::Input),
        Self::Part(Part::H2d),
        Self::Part(Part::Forward),
        Self::Part(Part::Backward),
        Self::Part(Part::Optimizer),
        Self::Part(Part::Other),
    ];

    /// The name as METRICS.md writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lateness => "lateness",
            Self::StepTime => "rank step time",
            Self::Part(part) => part.name(),
        }
    }

    /// The name in a URL.
    #[must_use]
    pub fn key(self) -> String {
        self.name().replace(' ', "-")
    }

    /// The measure of that key.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|measure| measure.key() == key)
    }
}

/// What a tile's cell says of the (step, rank) pairs it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// The largest: a lone slow cell never disappears. It biases towards bright as one zooms out.
    Max,
    /// The mean. It hides outliers.
    Mean,
}

impl Reduce {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Max, Self::Mean];

    /// The name in the legend and in a URL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Mean => "mean",
        }
    }

    /// The reduction of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reduce| reduce.name() == name)
    }
}

/// Cells of `per_column` steps x `per_row` ranks each. Columns begin at multiples of `per_column`, rows at
/// multiples of `per_row`, so that tiles of one level fit together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tile {
    /// The first step of the first column.
    pub step: u64,
    /// Steps in a column.
    pub per_column: u32,
    /// The first rank of the first row.
    pub rank: u32,
    /// Ranks in a row.
    pub per_row: u32,
    /// How many rows.
    pub rows: u32,
    /// Column by column, `column * rows + row`, in nanoseconds; NaN where nothing is known.
    pub values: Vec<f32>,
}

frame_codec!(
    KIND_TILE,
    Tile { step: u64, per_column: u32, rank: u32, per_row: u32, rows: u32, values: f32s }
);

impl Tile {
    /// How many columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.values.len() / (self.rows as usize).max(1)
    }

    /// Sides agree; a reader may index without looking.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.per_column > 0
            && self.per_row > 0
            && self.values.len() == self.columns() * self.rows as usize
            && self.values.len() <= MAX_CELLS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back() {
        for measure in Measure::ALL {
            assert_eq!(Measure::from_key(&measure.key()), Some(measure));
        }
        assert_eq!(Measure::from_key("nonsense"), None);
        assert_eq!(Reduce::from_name("mean"), Some(Reduce::Mean));
    }

    #[test]
    fn a_tile_round_trips_and_its_sides_are_checked() {
        let tile = Tile { step: 8, per_column: 4, rank: 0, per_row: 2, rows: 2, values: vec![1.0; 6] };
        assert_eq!(Tile::decode(&tile.encode()).unwrap(), tile);
        assert!(tile.is_consistent() && tile.columns() == 3);
        assert!(!Tile { rows: 4, ..tile.clone() }.is_consistent());
        assert!(!Tile { per_column: 0, ..tile }.is_consistent());
    }
}
