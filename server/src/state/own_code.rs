//! What a rank says of its code without being asked: the stacks of its long steps, and the lines where it writes checkpoints
//! and the like.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use wire::stacks::{LongStep, SpanLine};

/// The largest number of long steps whose stacks are kept, per rank.
const MAX_LONG_STEPS: usize = 8;
/// The largest size of these stacks in a run, in bytes. Each rank has an equal share.
const LONG_STEPS_BYTES: usize = 32 << 20;
/// The largest number of lines, per rank. There are ten kinds of spans, and a job does each of them in few places.
const MAX_LINES: usize = 32;

/// What one rank has said.
#[derive(Default)]
pub struct OwnCode {
    long_steps: VecDeque<Arc<LongStep>>,
    lines: BTreeSet<SpanLine>,
}

impl OwnCode {
    /// Returns the approximate size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of_lines: usize = self.lines.iter().map(|line| size_of_val(line) + line.bytes()).sum();
        self.bytes_of_steps() + of_lines
    }

    fn bytes_of_steps(&self) -> usize {
        self.long_steps.iter().map(|long| size_of::<LongStep>() + long.bytes()).sum()
    }

    /// Adds the stacks of a long step of one of `ranks` ranks. Without space, the oldest ones are dropped.
    pub(super) fn add_long_step(&mut self, long: LongStep, ranks: usize) {
        self.long_steps.push_back(Arc::new(long));
        let share = LONG_STEPS_BYTES / ranks.max(1);
        while self.long_steps.len() > MAX_LONG_STEPS || self.bytes_of_steps() > share {
            self.long_steps.pop_front();
        }
    }

    /// Adds a line. Without space, it is ignored.
    pub(super) fn add_line(&mut self, line: SpanLine) {
        if self.lines.len() < MAX_LINES {
            self.lines.insert(line);
        }
    }

    /// Returns the stacks of the newest long steps, oldest first.
    pub(super) fn long_steps(&self) -> Vec<Arc<LongStep>> {
        self.long_steps.iter().cloned().collect()
    }

    /// Returns the lines, in order of their kind.
    pub(super) fn lines(&self) -> Vec<SpanLine> {
        self.lines.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use wire::clock::MonoNanos;
    use wire::event::SpanKind;
    use wire::stacks::{Frame, Profile};

    use super::*;

    fn frame(line: u32) -> Frame {
        Frame { function: "save".into(), file: "train.py".into(), line }
    }

    fn long(begun: i64, frames: usize) -> LongStep {
        let profile = Profile { frames: vec![frame(1); frames], ..Profile::default() };
        let (from, until) = (MonoNanos(begun + 1), MonoNanos(begun + 2));
        LongStep { begun: MonoNanos(begun), usual_nanos: 1, from, until, profile }
    }

    fn begun(code: &OwnCode) -> Vec<i64> {
        code.long_steps().iter().map(|long| long.begun.0).collect()
    }

    #[test]
    fn the_newest_long_steps_are_kept_within_the_share_of_a_rank() {
        let mut code = OwnCode::default();
        (0..20).for_each(|at| code.add_long_step(long(at, 10), 2));
        assert_eq!(begun(&code), (12..20).collect::<Vec<_>>());
        // Of 65,536 ranks, each has 512 bytes.
        code.add_long_step(long(20, 2), 65_536);
        assert_eq!(begun(&code), [20]);
        code.add_long_step(long(21, 100), 65_536);
        assert_eq!((begun(&code), code.bytes()), (vec![], 0));
    }

    #[test]
    fn a_line_is_kept_once_and_no_more_than_fit() {
        let mut code = OwnCode::default();
        for line in (0..100).chain(0..100) {
            code.add_line(SpanLine { kind: SpanKind::Checkpoint, frame: frame(line) });
        }
        assert_eq!(code.lines().len(), MAX_LINES);
        assert_eq!(code.lines()[0].frame.line, 0);
    }
}
