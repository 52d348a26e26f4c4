//! Optimizer updates between training steps, if a hook reports them. They identify the first collective of each
//! communicator after an update.

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

/// Returns whether a collective enqueued now is the communicator's first one after an update; false if no update was
/// ever reported.
pub(crate) fn begins(communicator: u64) -> bool {
    match UPDATES.load(Ordering::Relaxed) {
        0 => false,
        updates => {
            SEEN.slot(communicator).is_some_and(|seen| seen.swap(updates, Ordering::Relaxed) != updates)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_collective_of_each_communicator_after_an_update_starts_a_step() {
        const COMMUNICATORS: [u64; 2] = [0xfeed, 0xbeef];
        assert_eq!(COMMUNICATORS.map(begins), [false, false], "no update was reported");
        for _ in 0..2 {
            updated();
            assert_eq!(COMMUNICATORS.map(begins), [true, true]);
            assert_eq!(COMMUNICATORS.map(begins), [false, false]);
        }
    }
}
