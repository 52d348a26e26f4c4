//! Whether a rank computes while a collective runs.
//!
//! Nothing tells: NCCL knows of collectives only. But when one takes longer than in the step before, what comes after it
//! shows it. A layer that is split over ranks needs its sum before it goes on, so that the next collective comes as much
//! later; gradients that are reduced behind the backward pass leave the next bucket where it was. Of a communicator that
//! shows neither it is taken that it carries gradients if it says what a step is, and else what a layer needs.

use std::collections::BTreeMap;

use wire::clock::MonoNanos;

use crate::place::IDLE_NANOS;

/// Places in a step that are remembered.
const MOST_PLACES: usize = 16_384;
/// What was seen a hundred steps ago counts for a third.
const REMEMBERED: f64 = 0.99;
/// So many changes are needed, of those that count,
const LEAST_CHANGES: f64 = 20.0;
/// of so much on average: less is what a kernel varies by itself.
const LEAST_CHANGE_NANOS: f64 = 50_000.0;
/// How far from either answer, 0 and -1, the slope may be.
const TOLERANCE: f64 = 0.3;

/// A collective of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) communicator: u64,
    /// Its position among those of its communicator.
    pub(crate) position: u32,
    pub(crate) start: MonoNanos,
    pub(crate) end: MonoNanos,
}

/// How long a collective took, and how long after it the next one began, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Observed {
    took: f64,
    gap: f64,
}

/// Changes from step to step: by how much the gap behind collectives changes where these take longer.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    changes: f64,
    squares: f64,
    products: f64,
}

impl Evidence {
    /// By how much the gap changes for every nanosecond that a collective takes longer; `None` while that is not sure.
    fn slope(&self) -> Option<f64> {
        let is_enough = self.changes >= LEAST_CHANGES
            && self.squares >= self.changes * LEAST_CHANGE_NANOS * LEAST_CHANGE_NANOS;
        is_enough.then(|| self.products / self.squares)
    }
}

/// What is known of each communicator.
#[derive(Debug, Default)]
pub(crate) struct Blocking {
    before: BTreeMap<(u64, u32), Observed>,
    evidence: BTreeMap<u64, Evidence>,
}

impl Blocking {
    /// Takes in a step: what ran on all communicators of the rank, in order of time.
    pub(crate) fn learn(&mut self, ran: &[Ran]) {
        for evidence in self.evidence.values_mut() {
            for sum in [&mut evidence.changes, &mut evidence.squares, &mut evidence.products] {
                *sum *= REMEMBERED;
            }
        }
        for pair in ran.windows(2) {
            let [one, next] = pair else { continue };
            let place = (one.communicator, one.position);
            let gap = next.start - one.end;
            // What waits for its turn says nothing of what is computed.
            if gap <= IDLE_NANOS {
                self.before.remove(&place);
                continue;
            }
            let now = Observed { took: (one.end - one.start) as f64, gap: gap as f64 };
            if self.before.len() == MOST_PLACES && !self.before.contains_key(&place) {
                continue;
            }
            if let Some(before) = self.before.insert(place, now) {
                let (longer, later) = (now.took - before.took, now.gap - before.gap);
                let evidence = self.evidence.entry(one.communicator).or_default();
                evidence.changes += 1.0;
                evidence.squares += longer * longer;
                evidence.products += longer * later;
            }
        }
    }

    /// Whether nothing is computed while this communicator's collectives run; `otherwise` where they do not show it.
    pub(crate) fn blocks(&self, communicator: u64, otherwise: bool) -> bool {
        // The gap stays as it is where what comes next waits for the end, and is eaten up where it does not.
        match self.evidence.get(&communicator).and_then(Evidence::slope) {
            Some(slope) if slope.abs() < TOLERANCE => true,
            Some(slope) if (slope + 1.0).abs() < TOLERANCE => false,
            _ => otherwise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u64 = 7;
    const NEXT: u64 = 8;

    /// Steps with a collective that takes 1 to 3 ms and another that comes 10 ms after the first has begun, or has ended.
    fn steps(waits_for_end: bool, jitter: i64) -> Blocking {
        let mut blocking = Blocking::default();
        for step in 0..50_i64 {
            let took = 1_000_000 + (step * 7_919 % 11) * jitter;
            let noise = step * 104_729 % 13 * 10_000;
            let next = 10_000_000 + noise + if waits_for_end { took } else { 0 };
            let at = |communicator, start: i64, end: i64| Ran {
                communicator,
                position: 0,
                start: MonoNanos(step * 100_000_000 + start),
                end: MonoNanos(step * 100_000_000 + end),
            };
            blocking.learn(&[at(ONE, 0, took), at(NEXT, next, next + 1_000_000)]);
        }
        blocking
    }

    #[test]
    fn what_comes_later_by_as_much_was_waiting_for_it() {
        for otherwise in [false, true] {
            assert!(steps(true, 200_000).blocks(ONE, otherwise));
            assert!(!steps(false, 200_000).blocks(ONE, otherwise));
        }
    }

    #[test]
    fn what_never_changes_shows_nothing() {
        for waits_for_end in [false, true] {
            for otherwise in [false, true] {
                assert_eq!(steps(waits_for_end, 1_000).blocks(ONE, otherwise), otherwise);
                assert_eq!(steps(waits_for_end, 200_000).blocks(NEXT, otherwise), otherwise);
            }
        }
    }

    #[test]
    fn collectives_that_wait_for_their_turn_show_nothing() {
        let mut blocking = Blocking::default();
        for step in 0..50_i64 {
            let end = step * 100_000_000 + 1_000_000 * (1 + step % 5);
            let at = |communicator, start, end| Ran {
                communicator,
                position: 0,
                start: MonoNanos(start),
                end: MonoNanos(end),
            };
            blocking.learn(&[at(ONE, step * 100_000_000, end), at(ONE, end + 5_000, end + 1_000_000)]);
        }
        assert!(!blocking.blocks(ONE, false) && blocking.blocks(ONE, true));
    }
}
