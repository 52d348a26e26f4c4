//! Whether a rank computes while a collective runs.
//!
//! Nothing tells: NCCL knows of collectives only. But when one takes longer than in the step before, what comes after
//! it shows it. A layer that is split over ranks needs its sum before it goes on, so that the next collective comes
//! as much later; gradients that are reduced behind the backward pass leave the next bucket where it was. Of what
//! shows neither it is taken that gradients are carried by the communicator that says what a step is, and what a
//! layer needs by all others; that what comes from other ranks is needed, and that nobody waits for what he only
//! sends.

use std::collections::BTreeMap;

use wire::clock::MonoNanos;
use wire::event::Function;

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

/// What is found alike of all: the collectives of one function on one communicator.
type Kind = (u64, Function);

/// A collective of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) kind: Kind,
    /// Its position among those of its communicator.
    pub(crate) position: u32,
    pub(crate) launch: MonoNanos,
    pub(crate) start: MonoNanos,
    pub(crate) end: MonoNanos,
    /// A message of this rank's.
    pub(crate) is_sent: bool,
    /// It is of the communicator that says what a step is.
    pub(crate) is_anchor: bool,
}

impl Ran {
    /// Whether the rank waits for it, where nothing shows that.
    fn is_needed(&self) -> bool {
        match self.kind.1 {
            Function::SendReceive => !self.is_sent,
            Function::AllToAll => true,
            _ => !self.is_anchor,
        }
    }
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

/// What is known of each kind.
#[derive(Debug, Default)]
pub(crate) struct Blocking {
    before: BTreeMap<(Kind, u32), Observed>,
    evidence: BTreeMap<Kind, Evidence>,
}

impl Blocking {
    /// Takes in a step, what ran on all communicators of the rank; when it computed nothing, as far as is known now.
    pub(crate) fn take(&mut self, ran: &mut [Ran]) -> Vec<(MonoNanos, MonoNanos)> {
        ran.sort_unstable_by_key(|one| (one.start, one.end));
        self.learn(ran);
        let blocked = |at: &usize| self.blocks(&ran[*at]);
        (0..ran.len()).filter(blocked).map(|at| (since(&ran[..at], &ran[at]), ran[at].end)).collect()
    }

    fn learn(&mut self, ran: &[Ran]) {
        for evidence in self.evidence.values_mut() {
            for sum in [&mut evidence.changes, &mut evidence.squares, &mut evidence.products] {
                *sum *= REMEMBERED;
            }
        }
        for pair in ran.windows(2) {
            let [one, next] = pair else { continue };
            let place = (one.kind, one.position);
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
                let evidence = self.evidence.entry(one.kind).or_default();
                evidence.changes += 1.0;
                evidence.squares += longer * longer;
                evidence.products += longer * later;
            }
        }
    }

    /// Whether nothing is computed while it runs.
    fn blocks(&self, one: &Ran) -> bool {
        // The gap stays as it is where what comes next waits for the end, and is eaten up where it does not.
        match self.evidence.get(&one.kind).and_then(Evidence::slope) {
            Some(slope) if slope.abs() < TOLERANCE => true,
            Some(slope) if (slope + 1.0).abs() < TOLERANCE => false,
            _ => one.is_needed(),
        }
    }
}

/// Since when a rank waits for something. Between two stages of a pipeline, what is received is asked for as soon as
/// something is sent, and waits for its turn behind it; nothing is computed in the meantime.
fn since(before: &[Ran], one: &Ran) -> MonoNanos {
    let mut since = one.start;
    if one.kind.1 == Function::SendReceive {
        let sent = before.iter().rev().take_while(|before| before.is_sent);
        for before in sent {
            if since - before.end > IDLE_NANOS {
                break;
            }
            since = before.start;
        }
    }
    since.max(one.launch).min(one.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u64 = 7;
    const NEXT: u64 = 8;
    const REDUCED: Function = Function::AllReduce;

    /// Times in nanoseconds; of the communicator that says what a step is.
    fn ran(kind: Kind, start: i64, end: i64) -> Ran {
        let (start, end) = (MonoNanos(start), MonoNanos(end));
        Ran { kind, position: 0, launch: MonoNanos(0), start, end, is_sent: false, is_anchor: true }
    }

    /// Steps with a collective that takes 1 to 3 ms and another that comes 10 ms after the first has begun, or has ended.
    fn steps(waits_for_end: bool, jitter: i64) -> Blocking {
        let mut blocking = Blocking::default();
        for step in 0..50_i64 {
            let took = 1_000_000 + (step * 7_919 % 11) * jitter;
            let noise = step * 104_729 % 13 * 10_000;
            let next = 10_000_000 + noise + if waits_for_end { took } else { 0 };
            let at = |communicator, start: i64, end: i64| {
                ran((communicator, REDUCED), step * 100_000_000 + start, step * 100_000_000 + end)
            };
            blocking.take(&mut [at(ONE, 0, took), at(NEXT, next, next + 1_000_000)]);
        }
        blocking
    }

    /// Of the communicator that says what a step is, and of another.
    fn blocks(blocking: &Blocking, communicator: u64, function: Function) -> [bool; 2] {
        let one = ran((communicator, function), 0, 1);
        [blocking.blocks(&one), blocking.blocks(&Ran { is_anchor: false, ..one })]
    }

    #[test]
    fn what_comes_later_by_as_much_was_waiting_for_it() {
        assert_eq!(blocks(&steps(true, 200_000), ONE, REDUCED), [true; 2]);
        assert_eq!(blocks(&steps(false, 200_000), ONE, REDUCED), [false; 2]);
    }

    #[test]
    fn what_never_changes_shows_nothing() {
        for waits_for_end in [false, true] {
            assert_eq!(blocks(&steps(waits_for_end, 1_000), ONE, REDUCED), [false, true]);
            assert_eq!(blocks(&steps(waits_for_end, 200_000), NEXT, REDUCED), [false, true]);
        }
    }

    #[test]
    fn each_function_shows_its_own() {
        let blocking = steps(false, 200_000);
        assert_eq!(blocks(&blocking, ONE, Function::AllToAll), [true; 2], "it is needed, as far as is known");
        assert_eq!(blocks(&blocking, ONE, Function::AllGather), [false, true]);
    }

    #[test]
    fn collectives_that_wait_for_their_turn_show_nothing() {
        let mut blocking = Blocking::default();
        for step in 0..50_i64 {
            let end = step * 100_000_000 + 1_000_000 * (1 + step % 5);
            let at = |start, end| ran((ONE, REDUCED), start, end);
            blocking.take(&mut [at(step * 100_000_000, end), at(end + 5_000, end + 1_000_000)]);
        }
        assert_eq!(blocks(&blocking, ONE, REDUCED), [false, true]);
    }

    #[test]
    fn what_is_received_behind_what_is_sent_is_waited_for_since_that_began() {
        let message = |communicator, start, end, launch, is_sent| Ran {
            launch: MonoNanos(launch),
            is_sent,
            ..ran((communicator, Function::SendReceive), start, end)
        };
        let blocked = |launch: i64, until: i64| {
            let sent = message(ONE, 100_000, until, 90_000, true);
            let received = message(NEXT, 3_000_000, 5_000_000, launch, false);
            Blocking::default().take(&mut [sent, received])
        };
        let since = |at: i64| vec![(MonoNanos(at), MonoNanos(5_000_000))];
        assert_eq!(blocked(90_000, 2_990_000), since(100_000), "the host is ahead");
        assert_eq!(blocked(500_000, 2_990_000), since(500_000), "it computes until it asks");
        assert_eq!(blocked(90_000, 2_000_000), since(3_000_000), "the stream was idle, so that it computed");
    }
}
