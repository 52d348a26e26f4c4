//! The hot path: one event into one thread's ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rtrb::Producer;
use wire::event::{Event, EventKind};

/// Slots of one thread's ring: 32,768 x 88 bytes = 2.8 MiB. The drain empties it every 100 ms, and is held up
/// for at most 2 s by a server that does not answer; in that time the busiest thread we know (40 buckets, two
/// records each, 100 steps/s) writes 16,000 records.
pub(crate) const RING_SLOTS: usize = 32_768;

/// Losses of one ring, by [`EventKind`].
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

/// One thread's way to record. A disabled one costs one branch.
pub struct Recorder {
    ring: Option<(Producer<Event>, Arc<Lost>)>,
}

impl Recorder {
    /// A recorder that records nothing.
    #[must_use]
    pub fn disabled() -> Self {
        Self { ring: None }
    }

    pub(crate) fn new(producer: Producer<Event>, lost: Arc<Lost>) -> Self {
        Self { ring: Some((producer, lost)) }
    }

    /// True when records go anywhere.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.ring.is_some()
    }

    /// Records `event`: no lock, no allocation, no result. When the ring is full the event is counted as lost.
    #[inline]
    pub fn record(&mut self, event: Event) {
        if let Some((ring, lost)) = &mut self.ring
            && ring.push(event).is_err()
        {
            lost.add(event.kind(), 1);
        }
    }

    /// Counts events as lost that did not come as far as a ring.
    pub fn lose(&self, kind: EventKind, count: u64) {
        if let Some((_, lost)) = &self.ring {
            lost.add(kind, count);
        }
    }
}
