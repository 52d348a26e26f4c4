//! Sends and receives. Both ranks report a message. They identify it alike: by its sender, its receiver, and its index
//! among the messages from one to the other.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use crate::table::{Table, mixed};

/// One rank's report of a message that it sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender, by its rank in the communicator.
    pub from: u32,
    /// The receiver, by its rank in the communicator.
    pub to: u32,
    /// The index among the messages from the sender to the receiver, from 0 on.
    pub seq: u32,
    /// The batch. Consecutive messages of a communicator in one batch run together.
    pub batch: u16,
    /// Whether the sender reports it.
    pub is_sent: bool,
}

/// Counts of messages by link and end, enough for some sixty communicators of 64 ranks.
static COUNTS: Table<8_192> = Table::new();

thread_local! {
    static BATCH: Cell<u16> = const { Cell::new(0) };
}

impl Message {
    /// Starts a batch: messages that this thread counts from now on run together, separately from earlier ones.
    pub(crate) fn begin_batch() {
        BATCH.set(BATCH.get().wrapping_add(1));
    }

    /// Counts a message. Every message must be counted, even one that is not recorded; otherwise the indices of the two
    /// ends diverge. Returns `None` for a message of a rank to itself, which is a copy, and if there are too many links
    /// to count.
    pub(crate) fn next(communicator: u64, (from, to): (u32, u32), is_sent: bool) -> Option<Self> {
        let message = Self { from, to, seq: 0, batch: BATCH.get(), is_sent };
        let count = COUNTS.slot(message.link(communicator) ^ u64::from(is_sent)).filter(|_| from != to)?;
        Some(Self { seq: count.fetch_add(1, Ordering::Relaxed) as u32, ..message })
    }

    /// Returns the number of the link from the sender to the receiver. Both ranks compute the same number, and it
    /// differs for any other pair and communicator.
    #[must_use]
    pub fn link(&self, communicator: u64) -> u64 {
        mixed(communicator ^ mixed((u64::from(self.from) << 32) | u64::from(self.to)))
    }
}
