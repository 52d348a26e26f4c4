//! The hot path: pushes one event into a thread's ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rtrb::Producer;
use wire::event::{Event, EventKind};

/// The number of slots in a thread's ring: 32,768 x 88 bytes = 2.8 MiB. The drain thread empties the ring at least every
/// 500 ms, but may wait up to 2 s for a server that does not answer. In that time the busiest known thread (40 buckets, two
/// records each, 100 steps/s) writes 20,000 records.
pub(crate) const RING_SLOTS: usize = 32_768;

/// The losses of one ring, by [`EventKind`].
#[derive(Default)]
pub(crate) struct Lost {
    counts: [AtomicU64; EventKind::ALL.len()],
}

impl Lost {
    fn add(&self, kind: EventKind, count: u64) {
        self.counts[kind as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, kind: EventKind) -> u64 {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }
}

/// A recorder for one thread. Recording with a disabled recorder costs one branch.
pub struct Recorder {
    ring: Option<(Producer<Event>, Arc<Lost>)>,
}

impl Recorder {
    /// Creates a recorder that records nothing.
    #[must_use]
    pub fn disabled() -> Self {
        Self { ring: None }
    }

    pub(crate) fn new(producer: Producer<Event>, lost: Arc<Lost>) -> Self {
        Self { ring: Some((producer, lost)) }
    }

    /// Returns true if the recorder is not disabled.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.ring.is_some()
    }

    /// Records `event` without a lock, an allocation or a result. If the ring is full, the event is counted as lost.
    #[inline]
    pub fn record(&mut self, event: Event) {
        if let Some((ring, lost)) = &mut self.ring
            && ring.push(event).is_err()
        {
            lost.add(event.kind(), 1);
        }
    }

    /// Counts events as lost that never reached a ring.
    pub fn lose(&self, kind: EventKind, count: u64) {
        if let Some((_, lost)) = &self.ring {
            lost.add(kind, count);
        }
    }
}
