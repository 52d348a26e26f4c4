//! Per-rank figures at the level of detail that a chart can show: as many cells as the chart has pixels, for a run of
//! any size.
//!
//! Nothing is cached. A tile over 1,024 ranks and 2,000 steps reads two million analyzed cells once, which takes some
//! tens of milliseconds outside the hub, and the dashboard requests only what it shows.

use std::sync::Arc;

use analysis::stats;
use analysis::step::{RankAnalysis, StepAnalysis};
use wire::live::tile::{MAX_CELLS, Measure, Reduce, Tile};
use wire::live::{FLAG_MISSING, FLAG_SHADOW, Part, StepRanks};

use super::run::usage::{MeasureHistory, Values};

/// The request for a tile.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The figure to show.
    pub measure: Measure,
    /// The reduction of several values to one cell.
    pub reduce: Reduce,
    /// The first and the last step.
    pub steps: (u64, u64),
    /// The ranks, from top to bottom.
    pub ranks: AskedRanks,
    /// The largest number of columns.
    pub columns: u32,
    /// The largest number of rows.
    pub rows: u32,
}

/// The ranks of a tile.
#[derive(Clone, Debug)]
pub enum AskedRanks {
    /// All ranks from the first to the last.
    Between(u32, u32),
    /// These ranks, one row each, in this order.
    Listed(Vec<u32>),
}

impl AskedRanks {
    /// Returns the axis of the rows, of which there are at most `most`.
    fn axis(&self, most: u32) -> Axis {
        match self {
            Self::Between(first, last) => Axis::fit((*first).into(), (*last.max(first)).into(), most.into()),
            Self::Listed(ranks) => Axis { first: 0, per_cell: 1, cells: ranks.len().max(1) },
        }
    }

    /// Returns the row of every rank below `world`; `None` for a rank that is not asked for.
    fn rows(&self, axis: Axis, world: usize) -> Vec<Option<usize>> {
        let row = |rank: u32| match self {
            Self::Between(first, last) => {
                (*first..=*last).contains(&rank).then(|| axis.cell(u64::from(rank)))
            }
            Self::Listed(ranks) => ranks.iter().position(|&listed| listed == rank),
        };
        (0..world as u32).map(row).collect()
    }
}

/// One axis of a tile: its first value, the values per cell, and the number of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    first: u64,
    per_cell: u64,
    cells: usize,
}

impl Axis {
    /// Returns the finest axis, in powers of two, that covers `first..=last` with at most `most` cells.
    fn fit(first: u64, last: u64, most: u64) -> Self {
        let cells = |per_cell: u64| (last / per_cell - first / per_cell).saturating_add(1);
        let mut per_cell = 1;
        while cells(per_cell) > most.max(1) {
            per_cell *= 2;
        }
        Self { first: first / per_cell * per_cell, per_cell, cells: cells(per_cell) as usize }
    }

    fn cell(self, value: u64) -> usize {
        ((value - self.first) / self.per_cell) as usize
    }
}

/// Computes the requested tile from `steps`. If the figure is of devices or hosts, `usage` has it for each rank.
#[must_use]
pub fn tile(steps: &[Arc<StepAnalysis>], asked: &Asked, usage: &[MeasureHistory]) -> Tile {
    let rows = asked.ranks.axis(asked.rows);
    let most = u64::from(asked.columns).min((MAX_CELLS / rows.cells) as u64);
    let columns = Axis::fit(asked.steps.0, asked.steps.1.max(asked.steps.0), most);
    let world = steps.iter().map(|step| step.ranks.len()).max().unwrap_or(0);
    let row_of = asked.ranks.rows(rows, world);
    let usage = UsageInSteps::new(usage, &row_of);
    let mut cells = Cells::new(asked.reduce, columns.cells * rows.cells);
    let is_asked = |step: &StepAnalysis| {
        (asked.steps.0..=asked.steps.1).contains(&step.step.0) && is_known(asked.measure, step)
    };
    for step in steps.iter().filter(|step| is_asked(step)) {
        let begin = columns.cell(step.step.0) * rows.cells;
        let mut add = |rank: usize, value: f32| {
            if let (Some(row), false) = (row_of[rank], value.is_nan()) {
                cells.add(begin + row, value);
            }
        };
        match asked.measure {
            Measure::Usage(_) => usage.values(step).for_each(|(rank, value)| add(rank, value)),
            measure => step.present().for_each(|(rank, analysis)| add(rank, value(measure, analysis))),
        }
    }
    Tile {
        step: columns.first,
        per_column: fitting(columns.per_cell),
        rank: rows.first as u32,
        per_row: fitting(rows.per_cell),
        rows: rows.cells as u32,
        values: cells.values(),
    }
}

/// A measure of the asked ranks over time, by rank.
struct UsageInSteps(Vec<(usize, Values)>);

impl UsageInSteps {
    fn new(usage: &[MeasureHistory], row_of: &[Option<usize>]) -> Self {
        let asked = usage.iter().zip(row_of).enumerate().filter(|(_, (_, row))| row.is_some());
        Self(asked.map(|(rank, (history, _))| (rank, history.values())).collect())
    }

    /// Returns the value of each rank in a step; none if no clock places the step.
    fn values(&self, step: &StepAnalysis) -> impl Iterator<Item = (usize, f32)> {
        let window = step.window;
        self.0.iter().filter_map(move |(rank, values)| Some((*rank, values.value_within(window?))))
    }
}

/// The cells of a tile while values are added to them.
enum Cells {
    Max(Vec<f32>),
    Min(Vec<f32>),
    /// The mean so far, and the number of values in it.
    Mean(Vec<(f32, u32)>),
    /// All values.
    Median(Vec<Vec<f32>>),
}

impl Cells {
    fn new(reduce: Reduce, count: usize) -> Self {
        match reduce {
            Reduce::Max => Self::Max(vec![f32::NAN; count]),
            Reduce::Min => Self::Min(vec![f32::NAN; count]),
            Reduce::Mean => Self::Mean(vec![(f32::NAN, 0); count]),
            Reduce::Median => Self::Median(vec![Vec::new(); count]),
        }
    }

    fn add(&mut self, at: usize, value: f32) {
        match self {
            Self::Max(cells) => cells[at] = cells[at].max(value),
            Self::Min(cells) => cells[at] = cells[at].min(value),
            Self::Mean(cells) => {
                let (mean, known) = &mut cells[at];
                *known += 1;
                *mean = if *known == 1 { value } else { *mean + (value - *mean) / *known as f32 };
            }
            Self::Median(cells) => cells[at].push(value),
        }
    }

    fn values(self) -> Vec<f32> {
        match self {
            Self::Max(cells) | Self::Min(cells) => cells,
            Self::Mean(cells) => cells.into_iter().map(|(mean, _)| mean).collect(),
            Self::Median(cells) => cells.into_iter().map(median).collect(),
        }
    }
}

/// Returns the median; the lower one of two; NaN if there are no values.
fn median(values: Vec<f32>) -> f32 {
    stats::lower_median(values.into_iter().map(f64::from)).map_or(f32::NAN, |median| median as f32)
}

/// Converts the values per cell to 32 bits. A single cell for all 2^32 steps is given a size of one less.
fn fitting(per_cell: u64) -> u32 {
    u32::try_from(per_cell).unwrap_or(u32::MAX)
}

/// Returns true if the figure is known for every rank of the step.
fn is_known(measure: Measure, step: &StepAnalysis) -> bool {
    match measure {
        Measure::StepTime | Measure::Usage(_) => true,
        Measure::Part(Part::Input | Part::H2d) => !step.shadow,
        _ => step.is_observed_in_full(),
    }
}

/// Returns a known figure of a rank.
fn value(measure: Measure, rank: &RankAnalysis) -> f32 {
    match measure {
        Measure::StepTime => rank.step_nanos as f32,
        Measure::Lateness => rank.lateness_nanos.map_or(f32::NAN, |nanos| nanos as f32),
        Measure::LocalWork => {
            let communication = rank.part(Part::ExposedWait) + rank.part(Part::ExposedTransfer);
            rank.step_nanos.saturating_sub(communication) as f32
        }
        Measure::Part(part) => rank.part(part) as f32,
        // Not a figure of a step.
        Measure::Usage(_) => f32::NAN,
    }
}

/// Returns the figures of all ranks in one step.
#[must_use]
pub fn ranks(step: &StepAnalysis) -> StepRanks {
    let mut out = StepRanks { step: step.step.0, ..StepRanks::default() };
    let shadow = if step.shadow { FLAG_SHADOW } else { 0 };
    for rank in &step.ranks {
        let read = |measure| {
            let known = rank.as_ref().filter(|_| is_known(measure, step));
            known.map_or(f32::NAN, |rank| value(measure, rank))
        };
        for part in Part::ALL {
            out.parts[part as usize].push(read(Measure::Part(part)));
        }
        out.rank_nanos.push(read(Measure::StepTime));
        out.lateness.push(read(Measure::Lateness));
        out.flags.push(shadow | if rank.is_none() { FLAG_MISSING } else { 0 });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::fixtures;

    /// A step in which rank r took `nanos[r]`. 0 stands for a rank without records.
    fn step(number: u64, nanos: &[u64]) -> Arc<StepAnalysis> {
        let rank = |&nanos: &u64| {
            let parts = [nanos, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            (nanos > 0).then(|| Box::new(fixtures::rank(parts)))
        };
        Arc::new(StepAnalysis {
            ranks: nanos.iter().map(rank).collect(),
            complete: !nanos.contains(&0),
            ..fixtures::step(number)
        })
    }

    fn asked(steps: (u64, u64), columns: u32, rows: u32) -> Asked {
        let (measure, reduce) = (Measure::StepTime, Reduce::Max);
        Asked { measure, reduce, steps, ranks: AskedRanks::Between(0, 2), columns, rows }
    }

    #[test]
    fn each_rank_and_step_has_its_own_cell_where_there_is_room() {
        let steps = [step(4, &[1, 2, 3]), step(6, &[7, 0, 9])];
        let tile = tile(&steps, &asked((4, 6), 10, 10), &[]);
        assert_eq!((tile.step, tile.per_column, tile.per_row, tile.rows), (4, 1, 1, 3));
        assert_eq!(format!("{:?}", tile.values), "[1.0, 2.0, 3.0, NaN, NaN, NaN, 7.0, NaN, 9.0]");
        assert!(tile.is_consistent());
    }

    #[test]
    fn of_a_step_that_was_not_observed_only_the_length_is_known() {
        let shadow = StepAnalysis { shadow: true, ..StepAnalysis::clone(&step(1, &[5])) };
        let steps = [step(0, &[4]), Arc::new(shadow)];
        let values = |measure| tile(&steps, &Asked { measure, ..asked((0, 1), 10, 1) }, &[]).values;
        assert_eq!(values(Measure::StepTime), [4.0, 5.0]);
        assert_eq!(format!("{:?}", values(Measure::Part(Part::Input))), "[4.0, NaN]");
        let row = ranks(&steps[1]);
        assert!(row.rank_nanos == [5.0] && row.parts.iter().all(|part| part[0].is_nan()));
    }

    #[test]
    fn cells_show_their_largest_value_or_their_mean() {
        let steps: Vec<_> = (0..64).map(|n| step(n, &[4, if n == 37 { 900 } else { 2 }, 6])).collect();
        for (columns, rows) in [(1, 1), (3, 2), (64, 3), (7, 1)] {
            let tile = tile(&steps, &asked((0, 63), columns, rows), &[]);
            assert!(tile.columns() <= columns as usize && tile.rows <= rows);
            assert_eq!(tile.values.iter().copied().fold(0.0, f32::max), 900.0);
        }
        let mean = tile(&steps[..2], &Asked { reduce: Reduce::Mean, ..asked((0, 1), 1, 1) }, &[]);
        assert_eq!(mean.values, [4.0]);
        let min = tile(&steps[..2], &Asked { reduce: Reduce::Min, ..asked((0, 1), 1, 1) }, &[]);
        assert_eq!(min.values, [2.0]);
        let odd = [step(0, &[5, 900, 6])];
        let median = tile(&odd, &Asked { reduce: Reduce::Median, ..asked((0, 0), 1, 1) }, &[]);
        assert_eq!(median.values, [6.0], "one slow rank does not move the median");
    }

    #[test]
    fn listed_ranks_are_rows_in_the_order_of_the_list() {
        let steps = [step(0, &[1, 2, 3]), step(1, &[4, 5, 6])];
        let ranks = AskedRanks::Listed(vec![2, 0]);
        let tile = tile(&steps, &Asked { ranks, ..asked((0, 1), 2, 8) }, &[]);
        assert_eq!((tile.rows, tile.per_row, tile.values), (2, 1, vec![3.0, 1.0, 6.0, 4.0]));
    }

    #[test]
    fn tiles_begin_at_multiples_of_their_cell_size() {
        let steps: Vec<_> = (10..30).map(|n| step(n, &[n, n, n])).collect();
        let tile = tile(&steps, &asked((13, 29), 5, 8), &[]);
        assert_eq!((tile.step, tile.per_column, tile.columns()), (12, 4, 5));
        assert_eq!(tile.values[0], 15.0, "steps 13 to 15: step 12 was not requested");
    }

    #[test]
    fn a_step_has_a_figure_for_each_rank_and_flags_missing_ranks() {
        let ranks = ranks(&step(3, &[5, 0]));
        assert!(ranks.is_consistent());
        assert_eq!(ranks.flags, [0, FLAG_MISSING]);
        assert!(ranks.rank_nanos[1].is_nan() && ranks.parts[0][0] == 5.0);
    }
}
