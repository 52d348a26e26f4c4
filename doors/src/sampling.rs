//! Which steps are observed in full, so that being observed costs no more than it may.
//!
//! The cost of the callbacks to the threads that call them is measured, one call in some. While it is more of a
//! processor than the budget, one training step in k is observed in full. Of the other steps only the enqueueing of
//! collectives is recorded, which every rank needs in order to number steps alike. k is a power of two, and steps are
//! chosen by number, so that all ranks choose the same steps without a word: those of the largest k. k is raised
//! while the cost is above the budget and lowered again when the cost has been well below it. Detail is never given up:
//! one step in 64 still says which rank is late.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use wire::clock::MonoNanos;

use crate::trail::{Function, Seat};

/// One call in this many is timed: reading the clock twice costs as much as leaving an entry. Odd, since calls come in
/// pairs, and one of a pair costs more.
const TIMED: u32 = 17;
/// The share of one processor that the callbacks of a rank may take: what people accept from an observer that is
/// always on.
const BUDGET: f64 = 0.01;
/// Sets another budget, in percent.
const VARIABLE: &str = "PACELINE_OVERHEAD_BUDGET";
/// The cost is measured over windows of this length.
const WINDOW_NANOS: i64 = 1_000_000_000;
/// Consecutive windows above the budget before k is doubled.
const WINDOWS_ABOVE: u32 = 3;
/// Consecutive windows below half of the budget before k is halved.
const WINDOWS_BELOW: u32 = 10;
/// The largest k.
const MAX_EVERY: u32 = 64;
/// A communicator that no job has.
const NO_COMMUNICATOR: u64 = u64::MAX;

/// k: one step in k is observed in full.
static EVERY: AtomicU32 = AtomicU32::new(1);
static SPENT_NANOS: AtomicU64 = AtomicU64::new(0);
static STEPS: Published = Published::new();
/// By local rank of this process.
static POSITIONS: [Position; 256] = [const { Position::new() }; 256];

thread_local! {
    static TURN: Cell<u32> = const { Cell::new(0) };
}

/// How a process knows a step from the collectives that it enqueues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The communicator whose collectives make up a step.
    pub communicator: u64,
    /// The function of a step's first collective.
    pub function: Function,
    /// The sequence number of the first collective of step 0 among those of its function.
    pub phase: u64,
    /// Collectives of this function in a step.
    pub per_step: u64,
    /// All collectives of the communicator in a step.
    pub collectives: u32,
}

/// [`Steps`] as callbacks read them, without a lock. A callback that reads while they change decides wrongly for one
/// step, which is then left out of the report.
struct Published {
    communicator: AtomicU64,
    function: AtomicU32,
    phase: AtomicU64,
    per_step: AtomicU64,
    collectives: AtomicU32,
}

impl Published {
    const fn new() -> Self {
        Self {
            communicator: AtomicU64::new(NO_COMMUNICATOR),
            function: AtomicU32::new(0),
            phase: AtomicU64::new(0),
            per_step: AtomicU64::new(1),
            collectives: AtomicU32::new(0),
        }
    }

    fn store(&self, steps: Option<Steps>) {
        if let Some(steps) = steps {
            self.function.store(steps.function as u32, Ordering::Relaxed);
            self.phase.store(steps.phase, Ordering::Relaxed);
            self.per_step.store(steps.per_step.max(1), Ordering::Relaxed);
            self.collectives.store(steps.collectives, Ordering::Relaxed);
        }
        let communicator = steps.map_or(NO_COMMUNICATOR, |steps| steps.communicator);
        self.communicator.store(communicator, Ordering::Release);
    }

    /// The step that begins with this collective, if one does.
    fn begun_by(&self, function: Function, seq: u64) -> Option<u64> {
        let per_step = self.per_step.load(Ordering::Relaxed);
        let since = seq.checked_sub(self.phase.load(Ordering::Relaxed))?;
        let is_first =
            self.function.load(Ordering::Relaxed) == function as u32 && since.is_multiple_of(per_step);
        is_first.then_some(since / per_step)
    }
}

/// Where one rank is.
struct Position {
    step: AtomicU64,
    /// Collectives of the step so far, but for the newest.
    before: AtomicU32,
}

impl Position {
    const fn new() -> Self {
        Self { step: AtomicU64::new(0), before: AtomicU32::new(0) }
    }
}

/// Says which collectives make up a step; `None` while that is not known.
pub(crate) fn publish(steps: Option<Steps>) {
    STEPS.store(steps);
}

/// Whether a collective that is enqueued now is observed in full. Must be asked of every collective once, in order.
///
/// A step begins when the one before ends: the last collective before an observed step is observed too.
pub(crate) fn observes(seat: Seat, communicator: u64, function: Function, seq: u64) -> bool {
    let every = u64::from(EVERY.load(Ordering::Relaxed));
    let anchor = STEPS.communicator.load(Ordering::Acquire);
    if every <= 1 || anchor == NO_COMMUNICATOR {
        return true;
    }
    let position = &POSITIONS[usize::from(seat.0)];
    if communicator != anchor {
        return position.step.load(Ordering::Relaxed).is_multiple_of(every);
    }
    let before = match STEPS.begun_by(function, seq) {
        Some(step) => {
            position.step.store(step, Ordering::Relaxed);
            position.before.store(0, Ordering::Relaxed);
            0
        }
        None => position.before.fetch_add(1, Ordering::Relaxed) + 1,
    };
    let step = position.step.load(Ordering::Relaxed);
    let is_last = before + 1 == STEPS.collectives.load(Ordering::Relaxed);
    step.is_multiple_of(every) || (is_last && (step + 1).is_multiple_of(every))
}

/// Whether a message that is enqueued now is observed in full: as the step it is in.
pub(crate) fn observes_message(seat: Seat) -> bool {
    let every = u64::from(EVERY.load(Ordering::Relaxed));
    every <= 1 || POSITIONS[usize::from(seat.0)].step.load(Ordering::Relaxed).is_multiple_of(every)
}

/// Does what a callback does, and counts what that costs.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> T {
    let turn = TURN.try_with(|turn| turn.replace(turn.get().wrapping_add(1))).unwrap_or(1);
    if !turn.is_multiple_of(TIMED) {
        return work();
    }
    let begin = agent::clock::now();
    let result = work();
    let nanos = (agent::clock::now() - begin).max(0).unsigned_abs();
    SPENT_NANOS.fetch_add(nanos * u64::from(TIMED), Ordering::Relaxed);
    result
}

/// Counts what being observed cost elsewhere.
pub(crate) fn spend(nanos: u64) {
    SPENT_NANOS.fetch_add(nanos, Ordering::Relaxed);
}

/// Watches the cost; held by the observing thread.
pub(crate) struct Budget {
    most: f64,
    /// When the window began, and what had been spent by then.
    window: Option<(MonoNanos, u64)>,
    above: u32,
    below: u32,
    every: u32,
    /// The largest k that was announced.
    announced: u32,
}

impl Budget {
    /// The budget that the environment sets, else the usual one.
    pub(crate) fn from_env() -> Self {
        let percent = std::env::var(VARIABLE).ok().and_then(|percent| percent.parse::<f64>().ok());
        Self::new(percent.filter(|percent| *percent >= 0.0).map_or(BUDGET, |percent| percent / 100.0))
    }

    fn new(most: f64) -> Self {
        Self { most, window: None, above: 0, below: 0, every: 1, announced: 1 }
    }

    /// Changes k where it is time to, and announces each k that is larger than any before. `ranks` is how many ranks the
    /// process is.
    pub(crate) fn keep(&mut self, at: MonoNanos, ranks: usize) {
        let Some(cost) = self.judge(at, SPENT_NANOS.load(Ordering::Relaxed), ranks) else { return };
        EVERY.store(self.every, Ordering::Relaxed);
        if self.every > self.announced {
            self.announced = self.every;
            agent::warn(&format!(
                "being observed takes {:.2} % of a processor, more than the {:.2} % it may ({VARIABLE}): from now on one \
                 step in {} is observed in full, the same one on every rank",
                cost * 100.0,
                self.most * 100.0,
                self.every
            ));
        }
    }

    /// The cost of a rank as a share of one processor, when it has just changed k.
    fn judge(&mut self, at: MonoNanos, spent: u64, ranks: usize) -> Option<f64> {
        let (begin, before) = *self.window.get_or_insert((at, spent));
        let passed = at - begin;
        if passed < WINDOW_NANOS {
            return None;
        }
        self.window = Some((at, spent));
        let cost = (spent - before) as f64 / passed as f64 / ranks.max(1) as f64;
        self.above = if cost > self.most { self.above + 1 } else { 0 };
        self.below = if cost < self.most / 2.0 { self.below + 1 } else { 0 };
        let every = match (self.above >= WINDOWS_ABOVE, self.below >= WINDOWS_BELOW) {
            (true, _) => (self.every * 2).min(MAX_EVERY),
            (_, true) => (self.every / 2).max(1),
            _ => return None,
        };
        (self.above, self.below) = (0, 0);
        (std::mem::replace(&mut self.every, every) != every).then_some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: u64 = 4_000_000;
    const MIDDLE: u64 = 8_000_000;
    const HIGH: u64 = 12_000_000;

    /// k after each second; `spent` is what each second cost, in nanoseconds.
    fn every(ranks: usize, spent: &[u64]) -> Vec<u32> {
        let (mut budget, mut total) = (Budget::new(0.01), 0);
        budget.judge(MonoNanos(0), 0, ranks);
        let judge = |(second, nanos): (i64, &u64)| {
            total += nanos;
            budget.judge(MonoNanos(second * WINDOW_NANOS), total, ranks);
            budget.every
        };
        (1..).zip(spent).map(judge).collect()
    }

    #[test]
    fn only_a_cost_that_stays_too_high_makes_steps_fewer() {
        assert_eq!(every(1, &[HIGH, HIGH, LOW, HIGH, HIGH]), [1; 5]);
        assert_eq!(every(1, &[HIGH, HIGH, HIGH, HIGH, HIGH, HIGH]), [1, 1, 2, 2, 2, 4]);
        assert_eq!(every(2, &[HIGH; 6]), [1; 6], "of two ranks each takes half of it");
        assert_eq!(every(1, &[HIGH; 40]).last(), Some(&MAX_EVERY), "some steps are always observed");
    }

    #[test]
    fn steps_are_more_again_when_they_cost_little() {
        let spent = [vec![HIGH; 6], vec![LOW; 9], vec![MIDDLE], vec![LOW; 20]].concat();
        let found = every(1, &spent);
        assert_eq!(found[5], 4);
        assert_eq!(found[15], 4, "it was not low for long enough");
        assert_eq!(found.last(), Some(&1));
    }

    /// The only test that changes what the process observes.
    #[test]
    fn whole_steps_are_chosen_by_number_and_the_end_before_them() {
        let (world, other) = (7, 9);
        let function = Function::AllReduce;
        let observed = |seat, every| {
            EVERY.store(every, Ordering::Relaxed);
            // Three collectives a step, the first of step 0 has number 5; a layer's sum on another communicator.
            (5..5 + 3 * 8)
                .map(|seq| {
                    (observes(seat, world, function, seq), observes(seat, other, Function::AllGather, seq))
                })
                .collect::<Vec<_>>()
        };
        publish(None);
        assert!(observed(Seat(1), 4).iter().all(|one| *one == (true, true)), "no steps are known");
        publish(Some(Steps { communicator: world, function, phase: 5, per_step: 3, collectives: 3 }));
        let full = observed(Seat(1), 4);
        let whole = |step: usize| full[3 * step..][..3].iter().all(|one| *one == (true, true));
        assert_eq!((0..8).filter(|step| whole(*step)).collect::<Vec<_>>(), [0, 4]);
        let ends: Vec<usize> = (0..24).filter(|at| full[*at] == (true, false)).collect();
        assert_eq!(ends, [11, 23], "the end of a step before one that is observed");
        let both = observed(Seat(2), 2);
        assert!(
            full.iter().zip(&both).all(|(four, two)| !four.1 || two.1),
            "ranks with another k have these too"
        );
        EVERY.store(1, Ordering::Relaxed);
        publish(None);
    }
}
