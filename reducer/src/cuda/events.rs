//! Events that are used again and again: making one for every step would cost time, and destroying one can hang while
//! a collective does.

use std::sync::Arc;

use agent::StepContext;
use gpu::device::{DeviceError, Event};
use wire::event::{BucketRecord, SpanKind};
use wire::ids::Step;

/// Things in turn: the next is free once nobody else holds it.
pub(super) struct Pool<T> {
    all: Vec<Arc<T>>,
    next: usize,
    most: usize,
}

impl<T> Pool<T> {
    /// Of at most so many.
    pub(super) fn new(most: usize) -> Self {
        Self { all: Vec::new(), next: 0, most }
    }

    /// The one that was taken longest ago, or a new one while there are few; `None` when all are held.
    pub(super) fn take(
        &mut self,
        make: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<Option<Arc<T>>, DeviceError> {
        let is_free = self.all.get(self.next).is_some_and(|one| Arc::strong_count(one) == 1);
        if !is_free {
            if self.all.len() >= self.most {
                return Ok(None);
            }
            self.all.insert(self.next, Arc::new(make()?));
        }
        let one = self.all[self.next].clone();
        self.next = (self.next + 1) % self.all.len();
        Ok(Some(one))
    }
}

/// The two events of one bucket.
pub(super) struct Pair {
    /// On the compute stream, behind the last gradient.
    pub(super) ready: Event,
    /// On the urgent stream, behind the collective.
    pub(super) end: Event,
}

/// What the device has not come past yet, or nobody has looked.
pub(super) enum Unread {
    /// A collective. Of the record, all but the device's times is known.
    Bucket(BucketRecord, Arc<Pair>),
    /// A phase of a step.
    Span { step: Step, kind: SpanKind, begin: Arc<Event>, end: Arc<Event> },
    /// A step.
    Step { context: StepContext, begin: Arc<Event>, end: Arc<Event>, samples: u64 },
}

impl Unread {
    /// The event that the device comes to last.
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
    fn what_is_held_is_not_handed_out_again() {
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
        assert_eq!((*again, *second), (1, 2), "the one that was given back");
        let third = take(&mut pool).unwrap();
        assert_eq!(*third, 3);
        assert!(take(&mut pool).is_none(), "all three are held");
        drop(third);
        assert!(take(&mut pool).is_none(), "the next in turn is still held");
        drop(second);
        assert_eq!(take(&mut pool).as_deref(), Some(&2));
        drop(again);
        assert_eq!(take(&mut pool).as_deref(), Some(&1), "that of the longest ago");
    }
}
