//! Tiles: rectangles of (step, rank) cells at a level of detail, which a heatmap draws for a run of any size.

use super::frame::frame_codec;
use super::{KIND_TILE, Part};
use crate::usage::Usage;

/// The largest number of cells in a tile: 8 MiB.
pub const MAX_CELLS: usize = 2 << 20;

/// The figure that a tile shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The lateness: how much later than the median rank the rank starts its collectives.
    Lateness,
    /// The local step time.
    StepTime,
    /// The local work: the rank's step less exposed communication.
    LocalWork,
    /// One part of the step ledger.
    Part(Part),
    /// How the rank's device or host was used at the end of the step.
    Usage(Usage),
}

impl Measure {
    /// The measures of a step, in the order in which the dashboard offers them. [`Usage::ALL`] has the others.
    pub const OF_STEPS: [Self; 13] = [
        Self::Lateness,
        Self::LocalWork,
        Self::StepTime,
        Self::Part(Part::ExposedWait),
        Self::Part(Part::ExposedTransfer),
        Self::Part(Part::Input),
        Self::Part(Part::H2d),
        Self::Part(Part::Forward),
        Self::Part(Part::Backward),
        Self::Part(Part::Optimizer),
        Self::Part(Part::Pause),
        Self::Part(Part::Idle),
        Self::Part(Part::Other),
    ];

    /// Returns the name used on the dashboard.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lateness => "lateness",
            Self::LocalWork => "local work",
            Self::StepTime => "rank step time",
            Self::Part(part) => part.name(),
            Self::Usage(usage) => usage.name(),
        }
    }

    /// Returns the name used in a URL.
    #[must_use]
    pub fn key(self) -> String {
        self.name().to_lowercase().replace([' ', '/'], "-")
    }

    /// Returns the measure with this key.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::all().find(|measure| measure.key() == key)
    }

    /// Returns all measures.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::OF_STEPS.into_iter().chain(Usage::ALL.map(Self::Usage))
    }
}

/// The reduction of the (step, rank) pairs in a cell to one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// The maximum. A single slow cell never disappears, but zooming out makes the tile brighter.
    Max,
    /// The minimum, for figures of which a small value is the one to see.
    Min,
    /// The mean. It hides outliers.
    Mean,
    /// The median. A slow rank does not move it, so it is what ranks are compared with.
    Median,
}

impl Reduce {
    /// All reductions.
    pub const ALL: [Self; 4] = [Self::Max, Self::Min, Self::Mean, Self::Median];

    /// Returns the name used in the legend and in a URL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Min => "min",
            Self::Mean => "mean",
            Self::Median => "median",
        }
    }

    /// Returns the reduction with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reduce| reduce.name() == name)
    }
}

/// A tile: cells of `per_column` steps x `per_row` ranks each. Columns begin at multiples of `per_column` and rows at
/// multiples of `per_row`, so that tiles of one level line up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tile {
    /// The first step of the first column.
    pub step: u64,
    /// The number of steps in a column.
    pub per_column: u32,
    /// The first rank of the first row.
    pub rank: u32,
    /// The number of ranks in a row.
    pub per_row: u32,
    /// The number of rows.
    pub rows: u32,
    /// The cells, column by column (`column * rows + row`), in nanoseconds or in the unit of the [`Usage`]; NaN if unknown.
    pub values: Vec<f32>,
}

frame_codec!(
    KIND_TILE,
    Tile { step: u64, per_column: u32, rank: u32, per_row: u32, rows: u32, values: f32s }
);

impl Tile {
    /// Returns the number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.values.len() / (self.rows as usize).max(1)
    }

    /// Returns true if the number of cells matches the sides. A reader may then index without checks.
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
    fn keys_round_trip() {
        for measure in Measure::all() {
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
