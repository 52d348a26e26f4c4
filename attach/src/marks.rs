//! Optimizer updates between training steps, if a hook reports them. They identify the first collective of each
//! communicator after an update.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::table::Table;

/// The number of updates so far.
static UPDATES: AtomicU64 = AtomicU64::new(0);
/// By communicator, the number of updates when its newest collective was enqueued.
static SEEN: Table = Table::new();

/// Records an optimizer update.
pub(crate) fn updated() {
    UPDATES.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of updates so far; 0 if none was ever reported. The step that follows an update has this number.
pub(crate) fn updates() -> u64 {
    UPDATES.load(Ordering::Relaxed)
}

/// Returns the number of updates so far if a collective enqueued now is the communicator's first one after an update, and
/// `None` otherwise, or if no update was ever reported. Must be called exactly once per collective.
pub(crate) fn begins(communicator: u64) -> Option<NonZeroU32> {
    let updates = UPDATES.load(Ordering::Relaxed);
    let is_first =
        || SEEN.slot(communicator).is_some_and(|seen| seen.swap(updates, Ordering::Relaxed) != updates);
    // The count starts over after four billion updates.
    NonZeroU32::new(updates as u32).filter(|_| is_first())
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
            assert_eq!(COMMUNICATORS.map(begins), [NonZeroU32::new(updates); 2]);
            assert_eq!(COMMUNICATORS.map(begins), [None, None]);
        }
    }
}
