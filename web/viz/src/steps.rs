//! The newest steps of a run as columns: the sum of the live stream's snapshots and deltas.

use std::ops::Range;

use wire::live::{FLAG_SHADOW, Part, StepColumns};

use crate::span::Span;

/// The largest number of stored steps, 70 bytes each.
pub const MAX_STEPS: usize = 20_000;

/// The stored steps, ascending. An unknown figure is NaN.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// The number of ranks in each step.
    pub ranks: usize,
    /// Step indices.
    pub step: Vec<u64>,
    /// The end of each step, in nanoseconds since the Unix epoch.
    pub ended_unix_nanos: Vec<u64>,
    /// The step time over all ranks, in nanoseconds.
    pub step_nanos: Vec<f32>,
    /// The samples per second of each step; NaN if the job does not count its samples.
    pub throughput: Vec<f32>,
    pub overlap: Vec<f32>,
    /// The step ledger as the mean over ranks, in nanoseconds.
    pub parts: [Vec<f32>; Part::COUNT],
    /// The flags of each step: [`FLAG_SHADOW`] and [`wire::live::FLAG_MISSING`].
    pub flags: Vec<u8>,
}

impl Steps {
    /// Applies a frame: a snapshot replaces everything, a delta appends its newer steps. Returns false if the frame
    /// does not fit the stored steps. The caller then requests a snapshot.
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
        let first_new = newest.map_or(0, |newest| frame.step.partition_point(|&step| step <= newest));
        let new = first_new..frame.step.len();
        self.step.extend_from_slice(&frame.step[new.clone()]);
        self.ended_unix_nanos.extend_from_slice(&frame.ended_unix_nanos[new.clone()]);
        self.step_nanos.extend_from_slice(&frame.step_nanos[new.clone()]);
        let rate = |row: usize| match frame.samples[row] {
            0 => f32::NAN,
            samples => samples as f32 * 1e9 / frame.step_nanos[row],
        };
        self.throughput.extend(new.clone().map(rate));
        self.overlap.extend_from_slice(&frame.overlap[new.clone()]);
        for (column, more) in self.parts.iter_mut().zip(&frame.parts) {
            column.extend_from_slice(&more[new.clone()]);
        }
        self.flags.extend_from_slice(&frame.flags[new]);
        self.forget_oldest();
        true
    }

    /// Drops many of the oldest steps at once, so that the columns are moved rarely.
    fn forget_oldest(&mut self) {
        if self.step.len() <= MAX_STEPS {
            return;
        }
        let gone = self.step.len() - MAX_STEPS * 7 / 8;
        self.step.drain(..gone);
        self.ended_unix_nanos.drain(..gone);
        for column in [&mut self.step_nanos, &mut self.throughput, &mut self.overlap] {
            column.drain(..gone);
        }
        self.parts.iter_mut().for_each(|column| drop(column.drain(..gone)));
        self.flags.drain(..gone);
    }

    /// Returns the step times of all steps but shadow steps, in nanoseconds, smallest first.
    #[must_use]
    pub fn sorted_step_nanos(&self) -> Vec<f32> {
        let observed =
            self.step_nanos.iter().zip(&self.flags).filter(|(_, flags)| **flags & FLAG_SHADOW == 0);
        let mut nanos: Vec<f32> = observed.map(|(nanos, _)| *nanos).filter(|nanos| !nanos.is_nan()).collect();
        nanos.sort_by(f32::total_cmp);
        nanos
    }

    /// Returns the range of stored steps; empty if there are none.
    #[must_use]
    pub fn bounds(&self) -> Span {
        match (self.step.first(), self.step.last()) {
            (Some(&first), Some(&last)) => Span::new(first as f64, last as f64 + 1.0),
            _ => Span::new(0.0, 0.0),
        }
    }

    /// Returns true if the ledger of the step in `row` is known.
    #[must_use]
    pub fn is_observed_in_full(&self, row: usize) -> bool {
        self.parts.iter().all(|part| !part[row].is_nan())
    }

    /// Returns the row of `step`, if it is stored.
    #[must_use]
    pub fn row_of(&self, step: u64) -> Option<usize> {
        self.step.binary_search(&step).ok()
    }

    /// Returns the rows of the steps that `view` shows, even in part.
    #[must_use]
    pub fn rows_in(&self, view: Span) -> Range<usize> {
        let start = self.step.partition_point(|&step| (step as f64) + 1.0 <= view.start);
        let end = self.step.partition_point(|&step| (step as f64) < view.end);
        start..end.max(start)
    }
}

/// The possible widths of a live view, in steps.
const WINDOWS: [f64; 3] = [60.0, 120.0, 300.0];

/// Returns the stored steps that a following view shows. An ended run is shown completely. A live run fills a window of
/// one of few widths from the left, so that the chart moves rarely; after the widest window, the newest steps are
/// shown.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(reset: bool, steps: Range<u64>, ranks: u32) -> StepColumns {
        let rows = steps.clone().count();
        StepColumns {
            reset,
            ranks,
            step: steps.collect(),
            ended_unix_nanos: vec![0; rows],
            step_nanos: vec![8.0; rows],
            samples: vec![16; rows],
            overlap: vec![0.5; rows],
            parts: std::array::from_fn(|_| vec![1.0; rows]),
            flags: vec![0; rows],
        }
    }

    #[test]
    fn deltas_continue_a_snapshot_and_repeats_are_dropped() {
        let mut steps = Steps::default();
        assert!(steps.apply(&frame(true, 0..5, 2)));
        assert!(steps.apply(&frame(false, 3..7, 2)));
        assert_eq!(steps.step, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(steps.parts[0].len(), 7);
        assert_eq!(steps.throughput[0], 2e9);
        assert!(steps.apply(&frame(true, 90..92, 3)), "a snapshot may change the number of ranks");
        assert_eq!((steps.step.len(), steps.ranks), (2, 3));
        assert!(!steps.apply(&frame(false, 92..93, 2)), "a delta may not");
    }

    #[test]
    fn shadow_steps_are_not_among_the_step_times() {
        let mut steps = Steps::default();
        steps.apply(&StepColumns {
            step_nanos: vec![3.0, 1.0, 2.0],
            flags: vec![0, FLAG_SHADOW, 0],
            ..frame(true, 0..3, 1)
        });
        assert_eq!(steps.sorted_step_nanos(), [2.0, 3.0]);
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
        assert_eq!(steps.flags.len(), steps.step.len());
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
    fn rows_in_a_view_include_partly_visible_steps() {
        let mut steps = Steps::default();
        steps.apply(&frame(true, 10..20, 1));
        assert_eq!(steps.rows_in(Span::new(12.5, 14.0)), 2..4);
        assert_eq!(steps.rows_in(Span::new(0.0, 5.0)), 0..0);
        assert_eq!(steps.bounds(), Span::new(10.0, 20.0));
    }
}
