//! Marks between training steps, where something tells of them: which collective is the first of its communicator since
//! the parameters were updated.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::table::Table;

/// How many updates there were.
static UPDATES: AtomicU64 = AtomicU64::new(0);
/// By communicator: how many there had been when its newest collective was enqueued.
static SEEN: Table = Table::new();

/// The parameters were updated.
pub(crate) fn updated() {
    UPDATES.fetch_add(1, Ordering::Relaxed);
}

/// Whether a collective that is enqueued now is the first of its communicator since an update; false where nobody tells
/// of any.
pub(crate) fn begins(communicator: u64) -> bool {
    match UPDATES.load(Ordering::Relaxed) {
        0 => false,
        updates => SEEN.of(communicator).is_some_and(|seen| seen.swap(updates, Ordering::Relaxed) != updates),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_communicator_since_an_update_begins_a_step() {
        const COMMUNICATORS: [u64; 2] = [0xfeed, 0xbeef];
        assert_eq!(COMMUNICATORS.map(begins), [false, false], "nobody told of an update");
        for _ in 0..2 {
            updated();
            assert_eq!(COMMUNICATORS.map(begins), [true, true]);
            assert_eq!(COMMUNICATORS.map(begins), [false, false]);
        }
    }
}
