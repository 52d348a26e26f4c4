//! What a rank says of its code without being asked: the stacks of its long steps, and the lines where it writes checkpoints
//! and the like.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use wire::stacks::{LongStep, SpanLine};

/// The number of newest long steps of a rank whose stacks are kept.
const NEWEST: usize = 8;
/// The number of older ones that are kept: the longest. In a long job, steps that are a little too long come now and then.
const LONGEST: usize = 4;
/// The largest size of these stacks in a run, in bytes. Each rank has an equal share.
const LONG_STEPS_BYTES: usize = 32 << 20;
/// The largest number of lines, per rank. There are ten kinds of spans, and a job does each of them in few places.
const MAX_LINES: usize = 32;

/// What one rank has said.
#[derive(Default)]
pub struct OwnCode {
    newest: VecDeque<Arc<LongStep>>,
    /// The longest ones before the newest, oldest first.
    longest: Vec<Arc<LongStep>>,
    lines: BTreeSet<SpanLine>,
}

impl OwnCode {
    /// Returns the approximate size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let lines: usize = self.lines.iter().map(|line| size_of_val(line) + line.bytes()).sum();
        self.long_step_bytes() + lines
    }

    fn long_step_bytes(&self) -> usize {
        self.longest.iter().chain(&self.newest).map(|long| size_of::<LongStep>() + long.bytes()).sum()
    }

    /// Adds the stacks of a long step of one of `ranks` ranks. Without space, older ones are dropped.
    pub(super) fn add_long_step(&mut self, long: LongStep, ranks: usize) {
        self.newest.push_back(Arc::new(long));
        if self.newest.len() > NEWEST {
            self.longest.extend(self.newest.pop_front());
        }
        let share = LONG_STEPS_BYTES / ranks.max(1);
        while self.longest.len() > LONGEST || !self.longest.is_empty() && self.long_step_bytes() > share {
            self.drop_shortest();
        }
        while self.long_step_bytes() > share {
            self.newest.pop_front();
        }
    }

    fn drop_shortest(&mut self) {
        let lasted = |(_, long): &(usize, &Arc<LongStep>)| long.until - long.begun;
        if let Some((shortest, _)) = self.longest.iter().enumerate().min_by_key(lasted) {
            self.longest.remove(shortest);
        }
    }

    /// Adds a line. Without space, it is ignored.
    pub(super) fn add_line(&mut self, line: SpanLine) {
        if self.lines.len() < MAX_LINES {
            self.lines.insert(line);
        }
    }

    /// Returns the stacks of the newest and the longest long steps, oldest first.
    pub(super) fn long_steps(&self) -> Vec<Arc<LongStep>> {
        self.longest.iter().chain(&self.newest).cloned().collect()
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
        lasting(begun, 2, frames)
    }

    fn lasting(begun: i64, nanos: i64, frames: usize) -> LongStep {
        let profile = Profile { frames: vec![frame(1); frames], ..Profile::default() };
        let (from, until) = (MonoNanos(begun + 1), MonoNanos(begun + nanos));
        LongStep { begun: MonoNanos(begun), usual_nanos: 1, from, until, profile }
    }

    fn begun(code: &OwnCode) -> Vec<i64> {
        code.long_steps().iter().map(|long| long.begun.0).collect()
    }

    #[test]
    fn the_newest_and_the_longest_are_kept_within_the_share_of_a_rank() {
        let mut code = OwnCode::default();
        for at in 0..20 {
            let nanos = if [1, 3, 4, 7, 9].contains(&at) { 100 + at } else { 2 };
            code.add_long_step(lasting(at, nanos, 10), 2);
        }
        assert_eq!(begun(&code), [[3, 4, 7, 9].as_slice(), &(12..20).collect::<Vec<_>>()].concat());
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
