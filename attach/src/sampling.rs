//! Selects the training steps to observe in full, which keeps the overhead within its budget.
//!
//! The cost of hooks to the threads that call them is measured on a sample of the calls. While it exceeds the budget, a
//! share of one processor, only one training step in k is observed in full. In the other steps, only the enqueueing of
//! collectives is recorded, which every rank needs to number steps alike.
//!
//! k is a power of two and steps are selected by number, so ranks need not communicate: ranks with different k all
//! observe the steps of the largest k. k rises while the cost is above the budget and falls again once the cost has
//! been well below it. It never exceeds 64: one step in 64 still shows which rank is late.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use agent::Budget;
use wire::clock::MonoNanos;

use crate::call_log::{Function, LocalRank};
use crate::marks::Begin;

/// One call in this many is timed: reading the clock twice costs as much as appending an entry. The number is odd
/// because calls come in pairs of which one costs more.
const TIMED: u32 = 17;
/// A communicator number that no job uses.
const NO_COMMUNICATOR: u64 = u64::MAX;

/// k: one step in k is observed in full.
static INTERVAL: AtomicU32 = AtomicU32::new(1);
static SPENT_NANOS: AtomicU64 = AtomicU64::new(0);
static STEPS: Published = Published::new();
/// The current position of each local rank.
static POSITIONS: [Position; 256] = [const { Position::new() }; 256];

thread_local! {
    static TURN: Cell<u32> = const { Cell::new(0) };
}

/// The description by which hooks recognize a step from its collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The communicator whose collectives make up a step.
    pub communicator: u64,
    /// The function of a step's first collective.
    pub function: Function,
    /// The sequence number of the first collective of step 0, among those of its function.
    pub phase: u64,
    /// The number of collectives of this function in a step.
    pub per_step: u64,
    /// The number of all collectives of the communicator in a step.
    pub collectives: u32,
    /// Whether steps begin with optimizer updates and are numbered by them.
    pub updates_begin_steps: bool,
}

/// [`Steps`] in the form that hooks read without a lock. A hook that reads during an update may decide wrongly for one
/// step, which the report then leaves out.
struct Published {
    communicator: AtomicU64,
    function: AtomicU32,
    phase: AtomicU64,
    per_step: AtomicU64,
    collectives: AtomicU32,
    updates_begin_steps: AtomicBool,
}

impl Published {
    const fn new() -> Self {
        Self {
            communicator: AtomicU64::new(NO_COMMUNICATOR),
            function: AtomicU32::new(0),
            phase: AtomicU64::new(0),
            per_step: AtomicU64::new(1),
            collectives: AtomicU32::new(0),
            updates_begin_steps: AtomicBool::new(false),
        }
    }

    fn store(&self, steps: Option<Steps>) {
        if let Some(steps) = steps {
            self.function.store(steps.function as u32, Ordering::Relaxed);
            self.phase.store(steps.phase, Ordering::Relaxed);
            self.per_step.store(steps.per_step.max(1), Ordering::Relaxed);
            self.collectives.store(steps.collectives, Ordering::Relaxed);
            self.updates_begin_steps.store(steps.updates_begin_steps, Ordering::Relaxed);
        }
        let communicator = steps.map_or(NO_COMMUNICATOR, |steps| steps.communicator);
        self.communicator.store(communicator, Ordering::Release);
    }

    /// Returns the step that starts with this collective, if any.
    fn begun_by(&self, function: Function, seq: u64, begins: Option<Begin>) -> Option<u64> {
        if self.updates_begin_steps.load(Ordering::Relaxed) {
            return begins.map(|begin| begin.step().0);
        }
        let per_step = self.per_step.load(Ordering::Relaxed);
        let offset = seq.checked_sub(self.phase.load(Ordering::Relaxed))?;
        let is_first =
            self.function.load(Ordering::Relaxed) == function as u32 && offset.is_multiple_of(per_step);
        is_first.then_some(offset / per_step)
    }
}

/// The position of one rank in its training.
struct Position {
    step: AtomicU64,
    /// The number of collectives in the step before the newest one.
    earlier_collectives: AtomicU32,
}

impl Position {
    const fn new() -> Self {
        Self { step: AtomicU64::new(0), earlier_collectives: AtomicU32::new(0) }
    }
}

/// Publishes the collectives that make up a step; `None` while they are unknown.
pub(crate) fn publish(steps: Option<Steps>) {
    STEPS.store(steps);
}

/// Returns whether the training steps are known, and begin with optimizer updates and are numbered by them.
pub(crate) fn updates_are_steps() -> bool {
    STEPS.communicator.load(Ordering::Acquire) != NO_COMMUNICATOR
        && STEPS.updates_begin_steps.load(Ordering::Relaxed)
}

/// Returns whether a collective enqueued now is observed in full. Must be called exactly once per collective, in order.
///
/// A step starts when the previous one ends, so the last collective before an observed step is observed too. `begins` says
/// which update came before, if the collective is the first one after an update.
pub(crate) fn observes(
    local_rank: LocalRank,
    communicator: u64,
    function: Function,
    seq: u64,
    begins: Option<Begin>,
) -> bool {
    let interval = u64::from(INTERVAL.load(Ordering::Relaxed));
    let anchor = STEPS.communicator.load(Ordering::Acquire);
    if interval <= 1 || anchor == NO_COMMUNICATOR {
        return true;
    }
    let position = &POSITIONS[usize::from(local_rank.0)];
    if communicator != anchor {
        // The first collective after an update may be that of another group.
        if let Some(step) = begins.filter(|_| STEPS.updates_begin_steps.load(Ordering::Relaxed)) {
            position.step.store(step.step().0, Ordering::Relaxed);
        }
        return position.step.load(Ordering::Relaxed).is_multiple_of(interval);
    }
    let earlier = match STEPS.begun_by(function, seq, begins) {
        Some(step) => {
            position.step.store(step, Ordering::Relaxed);
            position.earlier_collectives.store(0, Ordering::Relaxed);
            0
        }
        None => position.earlier_collectives.fetch_add(1, Ordering::Relaxed) + 1,
    };
    let step = position.step.load(Ordering::Relaxed);
    let is_last = earlier + 1 == STEPS.collectives.load(Ordering::Relaxed);
    step.is_multiple_of(interval) || (is_last && (step + 1).is_multiple_of(interval))
}

/// Returns whether a message enqueued now is observed in full, which depends on the current step.
pub(crate) fn observes_message(local_rank: LocalRank) -> bool {
    let interval = u64::from(INTERVAL.load(Ordering::Relaxed));
    interval <= 1
        || POSITIONS[usize::from(local_rank.0)].step.load(Ordering::Relaxed).is_multiple_of(interval)
}

/// Runs the work of a hook and measures its cost on a sample of the calls.
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

/// Adds observation cost that was measured elsewhere, in nanoseconds.
pub(crate) fn spend(nanos: u64) {
    SPENT_NANOS.fetch_add(nanos, Ordering::Relaxed);
}

/// Adapts k to the cost so far. `ranks` is the number of ranks in the process; `budget` is the observer thread's.
pub(crate) fn keep(budget: &mut Budget, at: MonoNanos, ranks: usize) {
    if let Some(interval) = budget.keep(at, SPENT_NANOS.load(Ordering::Relaxed), ranks) {
        INTERVAL.store(interval, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test that changes which steps the process observes.
    #[test]
    fn whole_steps_are_selected_by_number_with_the_end_of_the_step_before() {
        let (world, other) = (7, 9);
        let function = Function::AllReduce;
        let observed = |local_rank, interval| {
            INTERVAL.store(interval, Ordering::Relaxed);
            // A step has three collectives, and the first one of step 0 has sequence number 5. A layer's all-gather
            // runs on another communicator.
            (5..5 + 3 * 8)
                .map(|seq| {
                    (
                        observes(local_rank, world, function, seq, None),
                        observes(local_rank, other, Function::AllGather, seq, None),
                    )
                })
                .collect::<Vec<_>>()
        };
        publish(None);
        assert!(observed(LocalRank(1), 4).iter().all(|pair| *pair == (true, true)), "no steps are known");
        publish(Some(Steps {
            communicator: world,
            function,
            phase: 5,
            per_step: 3,
            collectives: 3,
            updates_begin_steps: false,
        }));
        let full = observed(LocalRank(1), 4);
        let whole = |step: usize| full[3 * step..][..3].iter().all(|pair| *pair == (true, true));
        assert_eq!((0..8).filter(|step| whole(*step)).collect::<Vec<_>>(), [0, 4]);
        let ends: Vec<usize> = (0..24).filter(|at| full[*at] == (true, false)).collect();
        assert_eq!(ends, [11, 23], "the end of a step before one that is observed");
        let both = observed(LocalRank(2), 2);
        assert!(
            full.iter().zip(&both).all(|(four, two)| !four.1 || two.1),
            "a rank with a smaller k observes these steps too"
        );
        publish(Some(Steps {
            communicator: world,
            function,
            phase: 0,
            per_step: 1,
            collectives: 1,
            updates_begin_steps: true,
        }));
        let observed_after = |updates: u32| {
            let (seq, first) = (u64::from(updates), Begin::new(updates, true));
            let layer = observes(LocalRank(3), other, Function::AllGather, seq, first);
            [layer, observes(LocalRank(3), world, function, seq, first)]
        };
        let steps = (1..9).map(observed_after).collect::<Vec<_>>();
        assert_eq!(steps[3], [true, true], "another group's collective is the first one of its step");
        // The last collective of a step before one that is observed.
        assert_eq!(steps[4], [false, true]);
        INTERVAL.store(1, Ordering::Relaxed);
        publish(None);
    }
}
