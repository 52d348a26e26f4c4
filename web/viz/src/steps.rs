//! The newest steps of a run, as columns: what snapshots and deltas of the live stream add up to.

use std::ops::Range;

use wire::live::{FLAG_MISSING, FLAG_SHADOW, Part, StepColumns};

use crate::span::Span;

/// At most this many (step, rank) cells are kept: 4 Mi x 10 columns x 4 bytes = 160 MiB at the very most.
pub const MAX_CELLS: usize = 4 << 20;

/// At most this many steps are kept, however few the ranks.
pub const MAX_STEPS: usize = 20_000;

/// Kept steps, ascending. A figure that is not known is NaN.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// How many ranks each step has.
    pub ranks: usize,
    /// Step numbers.
    pub step: Vec<u64>,
    /// When each step ended, in nanoseconds since the Unix epoch.
    pub ended_unix_nanos: Vec<u64>,
    /// Step time over all ranks, in nanoseconds.
    pub step_nanos: Vec<f32>,
    /// Samples per second of each step.
    pub throughput: Vec<f32>,
    /// Overlap ratio.
    pub overlap: Vec<f32>,
    /// The ledger, the mean over ranks, in nanoseconds.
    pub mean_parts: [Vec<f32>; 8],
    /// The ledger, `step * ranks + rank`.
    pub parts: [Vec<f32>; 8],
    /// Step time of one rank.
    pub rank_nanos: Vec<f32>,
    /// Lateness of one rank.
    pub lateness: Vec<f32>,
    /// Flags of one rank's step.
    pub flags: Vec<u8>,
}

impl Steps {
    /// Takes a frame: a snapshot replaces everything, a delta adds its newer steps. False when the frame does
    /// not fit what is here, so that the caller asks for a snapshot.
    pub fn apply(&mut self, frame: &StepColumns) -> bool {
        if !frame.is_consistent() {
            return false;
        }
        if frame.reset {
            *self = Self { ranks: frame.ranks as usize, ..Self::default() };
        } else if self.step.is_empty() {
            self.ranks = frame.ranks as usize;
        }
        if frame.ranks as usize != self.ranks {
            return false;
        }
        let newest = self.step.last().copied();
        let from = newest.map_or(0, |newest| frame.step.partition_point(|&step| step <= newest));
        for row in from..frame.step.len() {
            self.push(frame, row);
        }
        self.forget_oldest();
        true
    }

    fn push(&mut self, frame: &StepColumns, row: usize) {
        let cells = row * self.ranks..(row + 1) * self.ranks;
        let flags = &frame.flags[cells.clone()];
        let masked = |values: &[f32], mask: u8, at: usize| {
            if flags[at] & mask == 0 { values[cells.start + at] } else { f32::NAN }
        };
        self.step.push(frame.step[row]);
        self.ended_unix_nanos.push(frame.ended_unix_nanos[row]);
        self.step_nanos.push(frame.step_nanos[row]);
        self.throughput.push(frame.samples[row] as f32 * 1e9 / frame.step_nanos[row]);
        self.overlap.push(frame.overlap[row]);
        for part in 0..Part::ALL.len() {
            let column = &mut self.parts[part];
            let begin = column.len();
            column.extend(
                (0..self.ranks).map(|rank| masked(&frame.parts[part], FLAG_MISSING | FLAG_SHADOW, rank)),
            );
            self.mean_parts[part].push(mean(&column[begin..]));
        }
        self.rank_nanos.extend((0..self.ranks).map(|rank| masked(&frame.rank_nanos, FLAG_MISSING, rank)));
        self.lateness
            .extend((0..self.ranks).map(|rank| masked(&frame.lateness, FLAG_MISSING | FLAG_SHADOW, rank)));
        self.flags.extend_from_slice(flags);
    }

    /// Drops the oldest steps in large bites, so that the columns are moved rarely.
    fn forget_oldest(&mut self) {
        let most = (MAX_CELLS / self.ranks.max(1)).min(MAX_STEPS);
        if self.step.len() <= most {
            return;
        }
        let gone = self.step.len() - most * 7 / 8;
        let cells = gone * self.ranks;
        self.step.drain(..gone);
        self.ended_unix_nanos.drain(..gone);
        for column in [&mut self.step_nanos, &mut self.throughput, &mut self.overlap] {
            column.drain(..gone);
        }
        self.mean_parts.iter_mut().for_each(|column| drop(column.drain(..gone)));
        self.parts.iter_mut().for_each(|column| drop(column.drain(..cells)));
        self.rank_nanos.drain(..cells);
        self.lateness.drain(..cells);
        self.flags.drain(..cells);
    }

    /// The stretch of step numbers that is kept; empty when nothing is.
    #[must_use]
    pub fn bounds(&self) -> Span {
        match (self.step.first(), self.step.last()) {
            (Some(&first), Some(&last)) => Span::new(first as f64, last as f64 + 1.0),
            _ => Span::new(0.0, 0.0),
        }
    }

    /// Where `step` is kept.
    #[must_use]
    pub fn row_of(&self, step: u64) -> Option<usize> {
        self.step.binary_search(&step).ok()
    }

    /// Rows of the steps that `view` shows, even in part.
    #[must_use]
    pub fn rows_in(&self, view: Span) -> Range<usize> {
        let from = self.step.partition_point(|&step| (step as f64) + 1.0 <= view.start);
        let to = self.step.partition_point(|&step| (step as f64) < view.end);
        from..to.max(from)
    }

    /// The ledger of one rank's step, in the order of [`Part::ALL`]; `None` when it is not known.
    #[must_use]
    pub fn ledger(&self, row: usize, rank: usize) -> Option<[f32; 8]> {
        let at = row * self.ranks + rank;
        let ledger = std::array::from_fn(|part| self.parts[part][at]);
        (rank < self.ranks && ledger.iter().all(|ns| !ns.is_nan())).then_some(ledger)
    }

    /// The ledger of the middle rank, part by part: what a rank's step is held against.
    #[must_use]
    pub fn median_ledger(&self, row: usize) -> [f32; 8] {
        std::array::from_fn(|part| {
            let mut values: Vec<f32> = self.parts[part][row * self.ranks..(row + 1) * self.ranks]
                .iter()
                .copied()
                .filter(|ns| !ns.is_nan())
                .collect();
            values.sort_unstable_by(f32::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f32::NAN)
        })
    }
}

/// Widths that a live view has, in steps.
const WINDOWS: [f64; 3] = [60.0, 120.0, 300.0];

/// Which of the kept steps a view shows that follows them. An ended run is shown whole. A live one fills a
/// window of few possible widths from the left, so that the picture moves rarely, and then shows its newest.
#[must_use]
pub fn newest(bounds: Span, ended: bool) -> Span {
    if ended && !bounds.is_empty() {
        return bounds;
    }
    let widest = WINDOWS[WINDOWS.len() - 1];
    match WINDOWS.into_iter().find(|&window| window >= bounds.len()) {
        Some(window) => Span::new(bounds.start, bounds.start + window),
        None => Span::new(bounds.end - widest, bounds.end),
    }
}

fn mean(values: &[f32]) -> f32 {
    let (mut sum, mut known) = (0.0, 0);
    for value in values.iter().filter(|value| !value.is_nan()) {
        sum += value;
        known += 1;
    }
    if known == 0 { f32::NAN } else { sum / known as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(reset: bool, steps: Range<u64>, ranks: u32) -> StepColumns {
        let rows = steps.clone().count();
        let cells = rows * ranks as usize;
        StepColumns {
            reset,
            ranks,
            step: steps.collect(),
            ended_unix_nanos: vec![0; rows],
            step_nanos: vec![8.0; rows],
            samples: vec![16; rows],
            overlap: vec![0.5; rows],
            parts: std::array::from_fn(|_| vec![1.0; cells]),
            rank_nanos: vec![8.0; cells],
            lateness: vec![0.0; cells],
            flags: vec![0; cells],
        }
    }

    #[test]
    fn deltas_continue_a_snapshot_and_repeats_are_dropped() {
        let mut steps = Steps::default();
        assert!(steps.apply(&frame(true, 0..5, 2)));
        assert!(steps.apply(&frame(false, 3..7, 2)));
        assert_eq!(steps.step, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(steps.parts[0].len(), 14);
        assert_eq!(steps.throughput[0], 2e9);
        assert!(steps.apply(&frame(true, 90..92, 3)), "a snapshot may change the number of ranks");
        assert_eq!((steps.step.len(), steps.ranks), (2, 3));
        assert!(!steps.apply(&frame(false, 92..93, 2)), "a delta may not");
    }

    #[test]
    fn shadow_and_missing_cells_are_unknown() {
        let mut shadow = frame(true, 0..1, 2);
        shadow.flags = vec![0, FLAG_SHADOW];
        let mut steps = Steps::default();
        steps.apply(&shadow);
        assert_eq!(steps.mean_parts[0], [1.0], "the mean is over what is known");
        assert_eq!(steps.ledger(0, 0), Some([1.0; 8]));
        assert_eq!(steps.ledger(0, 1), None);
        assert_eq!(steps.rank_nanos[1], 8.0, "of a shadow step the length is known");
    }

    #[test]
    fn memory_is_bounded() {
        let mut steps = Steps::default();
        for chunk in 0..25 {
            steps.apply(&frame(chunk == 0, chunk * 1000..(chunk + 1) * 1000, 1));
        }
        assert!(steps.step.len() <= MAX_STEPS && steps.step.len() > MAX_STEPS * 3 / 4);
        assert_eq!(steps.step.last(), Some(&24_999));
        assert_eq!(steps.parts[7].len(), steps.step.len());
    }

    #[test]
    fn a_followed_view_moves_rarely() {
        let view = |len: f64, ended| newest(Span::new(10.0, 10.0 + len), ended);
        assert_eq!(view(1.0, false), view(60.0, false));
        assert_eq!(view(61.0, false), Span::new(10.0, 130.0));
        assert_eq!(view(1000.0, false), Span::new(710.0, 1010.0));
        assert_eq!(view(1000.0, true), Span::new(10.0, 1010.0));
        assert!(!newest(Span::new(0.0, 0.0), true).is_empty());
    }

    #[test]
    fn rows_in_view() {
        let mut steps = Steps::default();
        steps.apply(&frame(true, 10..20, 1));
        assert_eq!(steps.rows_in(Span::new(12.5, 14.0)), 2..4);
        assert_eq!(steps.rows_in(Span::new(0.0, 5.0)), 0..0);
        assert_eq!(steps.bounds(), Span::new(10.0, 20.0));
    }
}
