//! Optimizer updates between training steps, if a hook reports them. They identify the first collective of each
//! communicator after an update.

use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agent::Progress;
use wire::ids::Step;

use crate::table::Table;

/// The number of updates so far.
static UPDATES: AtomicU64 = AtomicU64::new(0);
/// Whether more than one optimizer has made them.
static HAVE_SEVERAL_OPTIMIZERS: AtomicBool = AtomicBool::new(false);
/// The time from one update to the next counts as a step.
static PROGRESS: LazyLock<Progress> = LazyLock::new(Progress::default);
/// By communicator, the number of updates when its newest collective was enqueued.
static SEEN: Table = Table::new();

/// What is known, when a collective is enqueued, of the update before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    updates: NonZeroU32,
    is_by_one: bool,
}

impl Begin {
    /// Creates the begin after `updates` updates, all of them by one optimizer if `is_by_one`; `None` before the first.
    #[must_use]
    pub(crate) fn new(updates: u32, is_by_one: bool) -> Option<Self> {
        NonZeroU32::new(updates).map(|updates| Self { updates, is_by_one })
    }

    /// Returns the step that begins. Its number is that of the updates so far.
    pub(crate) fn step(self) -> Step {
        Step(self.updates.get().into())
    }

    /// Returns whether one optimizer has made all updates so far. The updates of several may belong to one step.
    pub(crate) fn is_by_one(self) -> bool {
        self.is_by_one
    }
}

/// Records an optimizer update.
pub(crate) fn updated() {
    UPDATES.fetch_add(1, Ordering::Relaxed);
    PROGRESS.step_ended(agent::clock::now());
}

/// Returns the progress of the thread that trains.
pub(crate) fn progress() -> Progress {
    PROGRESS.clone()
}

/// Records that the next update is by another optimizer than those before it.
pub(crate) fn note_other_optimizer() {
    HAVE_SEVERAL_OPTIMIZERS.store(true, Ordering::Relaxed);
}

/// Returns the number of updates so far; 0 if none was ever reported. The step that follows an update has this number.
pub(crate) fn updates() -> u64 {
    UPDATES.load(Ordering::Relaxed)
}

/// Returns what is known of the newest update if a collective enqueued now is the communicator's first one after it, and
/// `None` otherwise, or if no update was ever reported. Must be called exactly once per collective.
pub(crate) fn begins(communicator: u64) -> Option<Begin> {
    let updates = UPDATES.load(Ordering::Relaxed);
    let is_first =
        || SEEN.slot(communicator).is_some_and(|seen| seen.swap(updates, Ordering::Relaxed) != updates);
    // The count starts over after four billion updates.
    Begin::new(updates as u32, !HAVE_SEVERAL_OPTIMIZERS.load(Ordering::Relaxed)).filter(|_| is_first())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_collective_of_each_communicator_after_an_update_starts_a_step() {
        const COMMUNICATORS: [u64; 2] = [0xfeed, 0xbeef];
        assert_eq!(COMMUNICATORS.map(begins), [None, None], "no update was reported");
        for updates in 1..3 {
            updated();
            assert_eq!(COMMUNICATORS.map(begins), [Begin::new(updates, true); 2]);
            assert_eq!(COMMUNICATORS.map(begins), [None, None]);
        }
        note_other_optimizer();
        updated();
        assert_eq!(COMMUNICATORS.map(begins), [Begin::new(3, false); 2]);
    }
}
