//! Per-rank figures at the level of detail that a chart can show: as many cells as the chart has pixels, for a run of
//! any size.
//!
//! Nothing is cached. A tile over 1,024 ranks and 2,000 steps reads two million analyzed cells once, which takes some
//! tens of milliseconds outside the hub, and the dashboard requests only what it shows.

use std::sync::Arc;

use analysis::step::{RankAnalysis, StepAnalysis};
use wire::live::tile::{MAX_CELLS, Measure, Reduce, Tile};
use wire::live::{FLAG_MISSING, FLAG_SHADOW, StepRanks};

/// The request for a tile.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The figure to show.
    pub measure: Measure,
    /// The reduction of several values to one cell.
    pub reduce: Reduce,
    /// The first and the last step.
    pub steps: (u64, u64),
    /// The first and the last rank.
    pub ranks: (u32, u32),
    /// The largest number of columns.
    pub columns: u32,
    /// The largest number of rows.
    pub rows: u32,
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

/// Computes the requested tile from `steps`.
#[must_use]
pub fn tile(steps: &[Arc<StepAnalysis>], asked: &Asked) -> Tile {
    let rows = Axis::fit(asked.ranks.0.into(), asked.ranks.1.max(asked.ranks.0).into(), asked.rows.into());
    let most = u64::from(asked.columns).min((MAX_CELLS / rows.cells) as u64);
    let columns = Axis::fit(asked.steps.0, asked.steps.1.max(asked.steps.0), most);
    let mut out = Tile {
        step: columns.first,
        per_column: fitting(columns.per_cell),
        rank: rows.first as u32,
        per_row: fitting(rows.per_cell),
        rows: rows.cells as u32,
        values: vec![f32::NAN; columns.cells * rows.cells],
    };
    let mut known = vec![0u32; if asked.reduce == Reduce::Mean { out.values.len() } else { 0 }];
    for step in steps.iter().filter(|step| (asked.steps.0..=asked.steps.1).contains(&step.step.0)) {
        let begin = columns.cell(step.step.0) * rows.cells;
        for (rank, analysis) in step.present() {
            if !(asked.ranks.0..=asked.ranks.1).contains(&(rank as u32)) {
                continue;
            }
            let value = value(asked.measure, step, analysis);
            let at = begin + rows.cell(rank as u64);
            let cell = &mut out.values[at];
            match asked.reduce {
                _ if value.is_nan() => {}
                Reduce::Max => *cell = cell.max(value),
                Reduce::Mean => {
                    known[at] += 1;
                    *cell = if known[at] == 1 { value } else { *cell + (value - *cell) / known[at] as f32 };
                }
            }
        }
    }
    out
}

/// Converts the values per cell to 32 bits. A single cell for all 2^32 steps is given a size of one less.
fn fitting(per_cell: u64) -> u32 {
    u32::try_from(per_cell).unwrap_or(u32::MAX)
}

/// Returns a figure of a rank. A shadow step has no marks, so only its duration is known.
fn value(measure: Measure, step: &StepAnalysis, rank: &RankAnalysis) -> f32 {
    match measure {
        Measure::StepTime => rank.step_nanos as f32,
        _ if step.shadow => f32::NAN,
        Measure::Lateness => rank.lateness_nanos.map_or(f32::NAN, |nanos| nanos as f32),
        Measure::Part(part) => rank.part(part) as f32,
    }
}

/// Returns the figures of all ranks in one step.
#[must_use]
pub fn ranks(step: &StepAnalysis) -> StepRanks {
    let mut out = StepRanks { step: step.step.0, ..StepRanks::default() };
    let shadow = if step.shadow { FLAG_SHADOW } else { 0 };
    for rank in &step.ranks {
        let read = |measure| rank.as_ref().map_or(f32::NAN, |rank| value(measure, step, rank));
        for part in wire::live::Part::ALL {
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
    use wire::ids::Step;

    /// A step in which rank r took `nanos[r]`. 0 stands for a rank without records.
    fn step(number: u64, nanos: &[u64]) -> Arc<StepAnalysis> {
        let rank = |&nanos: &u64| {
            (nanos > 0).then_some(RankAnalysis {
                parts: [nanos, 0, 0, 0, 0, 0, 0, 0],
                step_nanos: nanos,
                samples: 1,
                compute_nanos: 0,
                comm_nanos: 0,
                hidden_nanos: 0,
                compute_cpu_nanos: None,
                tail_nanos: None,
                lateness_nanos: None,
                caused_wait_nanos: 0.0,
                clock_free: false,
            })
        };
        Arc::new(StepAnalysis {
            step: Step(number),
            ranks: nanos.iter().map(rank).collect(),
            collectives: Vec::new(),
            window: None,
            local_nanos: 0,
            complete: !nanos.contains(&0),
            shadow: false,
            replay: None,
        })
    }

    fn asked(steps: (u64, u64), columns: u32, rows: u32) -> Asked {
        let (measure, reduce) = (Measure::StepTime, Reduce::Max);
        Asked { measure, reduce, steps, ranks: (0, 2), columns, rows }
    }

    #[test]
    fn each_rank_and_step_has_its_own_cell_where_there_is_room() {
        let steps = [step(4, &[1, 2, 3]), step(6, &[7, 0, 9])];
        let tile = tile(&steps, &asked((4, 6), 10, 10));
        assert_eq!((tile.step, tile.per_column, tile.per_row, tile.rows), (4, 1, 1, 3));
        assert_eq!(format!("{:?}", tile.values), "[1.0, 2.0, 3.0, NaN, NaN, NaN, 7.0, NaN, 9.0]");
        assert!(tile.is_consistent());
    }

    #[test]
    fn cells_show_their_largest_value_or_their_mean() {
        let steps: Vec<_> = (0..64).map(|n| step(n, &[4, if n == 37 { 900 } else { 2 }, 6])).collect();
        for (columns, rows) in [(1, 1), (3, 2), (64, 3), (7, 1)] {
            let tile = tile(&steps, &asked((0, 63), columns, rows));
            assert!(tile.columns() <= columns as usize && tile.rows <= rows);
            assert_eq!(tile.values.iter().copied().fold(0.0, f32::max), 900.0);
        }
        let mean = tile(&steps[..2], &Asked { reduce: Reduce::Mean, ..asked((0, 1), 1, 1) });
        assert_eq!(mean.values, [4.0]);
    }

    #[test]
    fn tiles_begin_at_multiples_of_their_cell_size() {
        let steps: Vec<_> = (10..30).map(|n| step(n, &[n, n, n])).collect();
        let tile = tile(&steps, &asked((13, 29), 5, 8));
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
