//! Reusable events. Creating one for every step would cost time, and destroying one can hang while a collective hangs.

use std::sync::Arc;

use agent::StepContext;
use gpu::device::{DeviceError, Event, Pinned};
use wire::event::{BucketRecord, SpanKind};
use wire::ids::Step;

/// The events and the tail of a bucket, which accompany it to the communication thread and back.
pub struct Ready {
    pub(super) step: Step,
    pub(super) pair: Arc<Pair>,
    /// Whether the pair is from the pool. Times of other pairs are not recorded.
    pub(super) is_observed: bool,
    /// The tail after the gradients of the last bucket: this rank's values, and after the reduction their sum.
    pub(super) tail: Option<Pinned>,
}

/// A pool whose items are reused in turn. An item is free once its last user has dropped it.
pub(super) struct Pool<T> {
    all: Vec<Arc<T>>,
    next: usize,
    most: usize,
}

impl<T> Pool<T> {
    /// Creates a pool of at most `most` items.
    pub(super) fn new(most: usize) -> Self {
        Self { all: Vec::new(), next: 0, most }
    }

    /// Returns the item that was taken longest ago if it is free, or otherwise a new one if the pool is not full.
    /// Returns `None` if the pool is full.
    pub(super) fn take(
        &mut self,
        make: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<Option<Arc<T>>, DeviceError> {
        let is_free = self.all.get(self.next).is_some_and(|event| Arc::strong_count(event) == 1);
        if !is_free {
            if self.all.len() >= self.most {
                return Ok(None);
            }
            self.all.insert(self.next, Arc::new(make()?));
        }
        let event = self.all[self.next].clone();
        self.next = (self.next + 1) % self.all.len();
        Ok(Some(event))
    }
}

/// The two events of a bucket.
pub(super) struct Pair {
    /// The event on the compute stream after the last gradient.
    pub(super) ready: Event,
    /// The event on the urgent stream after the collective.
    pub(super) end: Event,
}

/// A record whose events are not read yet.
pub(super) enum Unread {
    /// A collective. The record is complete except for the device's times.
    Bucket(BucketRecord, Arc<Pair>),
    /// A phase of a step.
    Span { step: Step, kind: SpanKind, begin: Arc<Event>, end: Arc<Event> },
    /// A step.
    Step { context: StepContext, begin: Arc<Event>, end: Arc<Event>, samples: u64 },
}

impl Unread {
    /// Returns the event that the device reaches last.
    pub(super) fn last(&self) -> &Event {
        match self {
            Self::Bucket(_, pair) => &pair.end,
            Self::Span { end, .. } | Self::Step { end, .. } => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_in_use_is_not_handed_out_again() {
        let mut made = 0;
        let mut pool = Pool::new(3);
        let mut take = |pool: &mut Pool<u32>| {
            pool.take(|| {
                made += 1;
                Ok(made)
            })
            .unwrap()
        };
        let [first, second] = [take(&mut pool), take(&mut pool)].map(Option::unwrap);
        drop(first);
        let again = take(&mut pool).unwrap();
        assert_eq!((*again, *second), (1, 2), "the item that was given back");
        let third = take(&mut pool).unwrap();
        assert_eq!(*third, 3);
        assert!(take(&mut pool).is_none(), "all three are in use");
        drop(third);
        assert!(take(&mut pool).is_none(), "the next in turn is still in use");
        drop(second);
        assert_eq!(take(&mut pool).as_deref(), Some(&2));
        drop(again);
        assert_eq!(take(&mut pool).as_deref(), Some(&1), "the item that was taken longest ago");
    }
}
