//! Determines whether a rank computes while a collective runs.
//!
//! No hook reports this, since NCCL knows only collectives. But the rank's reaction shows it when a collective takes
//! longer than in the step before. A layer that is split over ranks needs its sum before it continues, so the next
//! collective starts later by the same amount. Gradients that are reduced during the backward pass do not move the next
//! bucket.
//!
//! A job that waits in Python says so itself ([`super::waits`]).
//!
//! Without such evidence, the following is assumed. The anchor communicator, which defines the step, reduces gradients;
//! the rank does not wait for them. All other communicators serve layers, which do wait. A rank waits for every
//! all-to-all and for messages that it receives, and not for messages that it sends. What is assumed is marked, so that no
//! figure rests on it.

use std::collections::BTreeMap;

use wire::clock::MonoNanos;
use wire::event::Function;

/// The largest number of positions in a step that are remembered.
const MAX_POSITIONS: usize = 16_384;
/// The factor by which evidence decays per step. After a hundred steps it counts for a third.
const REMEMBERED: f64 = 0.99;
/// The number of changes needed for a decision, after decay.
const MIN_CHANGES: f64 = 20.0;
/// The root mean square that changes must have for a decision, in nanoseconds. A kernel's own variation is smaller.
const MIN_CHANGE_NANOS: f64 = 50_000.0;
/// The distance of the slope from 0 or -1 that still counts as that answer.
const TOLERANCE: f64 = 0.3;

/// The idle time before a collective that shows it was waiting for its gradients, in nanoseconds. A collective that
/// waited for its turn follows within some ten microseconds, or later if the thread that runs it was descheduled. The
/// gradients of a bucket take milliseconds.
pub(crate) const IDLE_NANOS: i64 = 200_000;

/// The collectives that share an answer: those of one function on one communicator.
type Kind = (u64, Function);

/// A stretch of time.
pub(crate) type Stretch = (MonoNanos, MonoNanos);

/// When collectives ran in a step.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Blocked {
    /// When the rank computed nothing, as far as is known or assumed.
    pub(crate) blocked: Vec<Stretch>,
    /// When collectives ran of which nothing shows whether the rank computed meanwhile.
    pub(crate) unclear: Vec<Stretch>,
    /// When collectives ran that are known not to block. The rank computed meanwhile if it still had anything to compute.
    pub(crate) nonblocking: Vec<Stretch>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StepCollective {
    pub(crate) kind: Kind,
    /// The index among the collectives of its communicator.
    pub(crate) position: u32,
    pub(crate) launch: MonoNanos,
    pub(crate) start: MonoNanos,
    pub(crate) end: MonoNanos,
    /// Whether this is a message that the rank sends.
    pub(crate) is_sent: bool,
    /// Whether the communicator defines the step.
    pub(crate) is_anchor: bool,
}

impl StepCollective {
    /// Returns whether the rank is assumed to wait for the collective when there is no evidence.
    fn is_needed(&self) -> bool {
        match self.kind.1 {
            Function::SendReceive => !self.is_sent,
            Function::AllToAll => true,
            _ => !self.is_anchor,
        }
    }
}

/// The duration of a collective and the gap after it, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Observed {
    took: f64,
    gap: f64,
}

/// Sums over changes from step to step: how the gap after a collective changes when the collective takes longer.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    changes: f64,
    squares: f64,
    products: f64,
}

impl Evidence {
    /// Returns the change of the gap per nanosecond that a collective takes longer; `None` without enough evidence.
    fn slope(&self) -> Option<f64> {
        let is_enough =
            self.changes >= MIN_CHANGES && self.squares >= self.changes * MIN_CHANGE_NANOS * MIN_CHANGE_NANOS;
        is_enough.then(|| self.products / self.squares)
    }
}

/// The evidence about each kind of collective.
#[derive(Debug, Default)]
pub(crate) struct Blocking {
    previous: BTreeMap<(Kind, u32), Observed>,
    evidence: BTreeMap<Kind, Evidence>,
}

impl Blocking {
    /// Adds the collectives of a step, on all communicators of the rank. Returns when the rank was blocked, judged by the
    /// evidence so far.
    pub(crate) fn ingest(&mut self, ran: &mut [StepCollective]) -> Blocked {
        ran.sort_unstable_by_key(|collective| (collective.start, collective.end));
        self.learn(ran);
        let mut found = Blocked::default();
        for (at, collective) in ran.iter().enumerate() {
            let shown = self.shows_blocking(collective);
            let stretch = (wait_begin(&ran[..at], collective), collective.end);
            if shown.unwrap_or_else(|| collective.is_needed()) {
                found.blocked.push(stretch);
            }
            match shown {
                Some(true) => {}
                Some(false) => found.nonblocking.push((collective.start, collective.end)),
                None => found.unclear.push((collective.start, collective.end)),
            }
        }
        found
    }

    fn learn(&mut self, ran: &[StepCollective]) {
        for evidence in self.evidence.values_mut() {
            for sum in [&mut evidence.changes, &mut evidence.squares, &mut evidence.products] {
                *sum *= REMEMBERED;
            }
        }
        for pair in ran.windows(2) {
            let [collective, next] = pair else { continue };
            let place = (collective.kind, collective.position);
            let gap = next.start - collective.end;
            // A collective that waits for its turn says nothing about compute.
            if gap <= IDLE_NANOS {
                self.previous.remove(&place);
                continue;
            }
            let now = Observed { took: (collective.end - collective.start) as f64, gap: gap as f64 };
            if self.previous.len() == MAX_POSITIONS && !self.previous.contains_key(&place) {
                continue;
            }
            if let Some(previous) = self.previous.insert(place, now) {
                let (longer, later) = (now.took - previous.took, now.gap - previous.gap);
                let evidence = self.evidence.entry(collective.kind).or_default();
                evidence.changes += 1.0;
                evidence.squares += longer * longer;
                evidence.products += longer * later;
            }
        }
    }

    /// Returns whether nothing is computed while the collective runs; `None` if nothing shows it.
    fn shows_blocking(&self, collective: &StepCollective) -> Option<bool> {
        // The gap stays as it is if later work waits for the collective's end, and shrinks if it does not.
        match self.evidence.get(&collective.kind)?.slope()? {
            slope if slope.abs() < TOLERANCE => Some(true),
            slope if (slope + 1.0).abs() < TOLERANCE => Some(false),
            _ => None,
        }
    }
}

/// Returns the start of the rank's wait for a collective. Between two stages of a pipeline, a receive is enqueued
/// together with a send and runs after it; the rank computes nothing during either.
fn wait_begin(earlier: &[StepCollective], collective: &StepCollective) -> MonoNanos {
    let mut begin = collective.start;
    if collective.kind.1 == Function::SendReceive {
        let sent = earlier.iter().rev().take_while(|sent| sent.is_sent);
        for message in sent {
            if begin - message.end > IDLE_NANOS {
                break;
            }
            begin = message.start;
        }
    }
    begin.max(collective.launch).min(collective.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u64 = 7;
    const NEXT: u64 = 8;
    const REDUCED: Function = Function::AllReduce;

    /// Builds a collective of the anchor communicator; times in nanoseconds.
    fn ran(kind: Kind, start: i64, end: i64) -> StepCollective {
        let (start, end) = (MonoNanos(start), MonoNanos(end));
        StepCollective {
            kind,
            position: 0,
            launch: MonoNanos(0),
            start,
            end,
            is_sent: false,
            is_anchor: true,
        }
    }

    /// Runs steps with a collective that takes 1 to 3 ms. Another one starts 10 ms after the first starts, or ends.
    fn steps(waits_for_end: bool, jitter: i64) -> Blocking {
        let mut blocking = Blocking::default();
        for step in 0..50_i64 {
            let took = 1_000_000 + (step * 7_919 % 11) * jitter;
            let noise = step * 104_729 % 13 * 10_000;
            let next = 10_000_000 + noise + if waits_for_end { took } else { 0 };
            let at = |communicator, start: i64, end: i64| {
                ran((communicator, REDUCED), step * 100_000_000 + start, step * 100_000_000 + end)
            };
            blocking.ingest(&mut [at(ONE, 0, took), at(NEXT, next, next + 1_000_000)]);
        }
        blocking
    }

    /// What is known, and what is assumed of a collective of the anchor communicator and of another one.
    fn answers(blocking: &Blocking, communicator: u64, function: Function) -> Result<bool, [bool; 2]> {
        let collective = ran((communicator, function), 0, 1);
        let assumed = [collective.is_needed(), StepCollective { is_anchor: false, ..collective }.is_needed()];
        blocking.shows_blocking(&collective).ok_or(assumed)
    }

    #[test]
    fn a_collective_blocks_if_the_next_one_starts_later_by_the_same_amount() {
        assert_eq!(answers(&steps(true, 200_000), ONE, REDUCED), Ok(true));
        assert_eq!(answers(&steps(false, 200_000), ONE, REDUCED), Ok(false));
    }

    #[test]
    fn durations_that_never_change_are_no_evidence() {
        for waits_for_end in [false, true] {
            assert_eq!(answers(&steps(waits_for_end, 1_000), ONE, REDUCED), Err([false, true]));
            assert_eq!(answers(&steps(waits_for_end, 200_000), NEXT, REDUCED), Err([false, true]));
        }
    }

    #[test]
    fn what_is_assumed_is_unclear_whatever_is_assumed() {
        for (waits_for_end, blocked, nonblocking) in [(true, 1, 0), (false, 0, 1)] {
            let mut blocking = steps(waits_for_end, 200_000);
            let collective = ran((ONE, REDUCED), 0, 1_000);
            let [assumed, needed] =
                [ran((NEXT, REDUCED), 2_000, 3_000), ran((NEXT, Function::AllToAll), 4_000, 5_000)];
            let found = blocking.ingest(&mut [collective, assumed, needed]);
            let stretch = |collective: StepCollective| (collective.start, collective.end);
            assert_eq!(found.unclear, [stretch(assumed), stretch(needed)]);
            assert_eq!(found.blocked.len(), blocked + 1, "an all-to-all is assumed to block");
            assert_eq!(found.nonblocking.len(), nonblocking);
        }
    }

    #[test]
    fn evidence_applies_to_its_own_function_only() {
        let blocking = steps(false, 200_000);
        assert_eq!(answers(&blocking, ONE, Function::AllToAll), Err([true; 2]), "assumed to be needed");
        assert_eq!(answers(&blocking, ONE, Function::AllGather), Err([false, true]));
    }

    #[test]
    fn collectives_that_wait_for_their_turn_are_no_evidence() {
        let mut blocking = Blocking::default();
        for step in 0..50_i64 {
            let end = step * 100_000_000 + 1_000_000 * (1 + step % 5);
            let at = |start, end| ran((ONE, REDUCED), start, end);
            blocking.ingest(&mut [at(step * 100_000_000, end), at(end + 5_000, end + 1_000_000)]);
        }
        assert_eq!(answers(&blocking, ONE, REDUCED), Err([false, true]));
    }

    #[test]
    fn the_wait_for_a_receive_starts_with_the_send_before_it() {
        let message = |communicator, start, end, launch, is_sent| StepCollective {
            launch: MonoNanos(launch),
            is_sent,
            ..ran((communicator, Function::SendReceive), start, end)
        };
        let blocked = |launch: i64, end: i64| {
            let sent = message(ONE, 100_000, end, 90_000, true);
            let received = message(NEXT, 3_000_000, 5_000_000, launch, false);
            Blocking::default().ingest(&mut [sent, received]).blocked
        };
        let wait_from = |at: i64| vec![(MonoNanos(at), MonoNanos(5_000_000))];
        assert_eq!(blocked(90_000, 2_990_000), wait_from(100_000), "the host runs ahead");
        assert_eq!(blocked(500_000, 2_990_000), wait_from(500_000), "the rank computes until the launch");
        assert_eq!(
            blocked(90_000, 2_000_000),
            wait_from(3_000_000),
            "the stream was idle, so the rank computed"
        );
    }
}
