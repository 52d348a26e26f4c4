//! The newest step: written by the drain thread, read by whoever does something once in so many steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wire::event::Event;
use wire::ids::Step;

/// Its number plus one, 0 before the first, and how long it took in nanoseconds. Read one after the other, which may be those
/// of neighbours.
#[derive(Clone, Default)]
pub(crate) struct Newest(Arc<[AtomicU64; 2]>);

impl Newest {
    /// Takes in records, the newest last.
    pub(crate) fn see(&self, events: &[Event]) {
        let ended = events.iter().rev().find_map(|event| match event {
            Event::Step(step) => Some(step),
            _ => None,
        });
        if let Some(ended) = ended {
            let [number, nanos] = &*self.0;
            nanos.store((ended.end - ended.begin).max(0).unsigned_abs(), Ordering::Relaxed);
            number.fetch_max(ended.step.0 + 1, Ordering::Relaxed);
        }
    }

    /// The newest step that ended, and how long one takes; a tenth of a second late.
    pub(crate) fn step(&self) -> Option<(Step, Duration)> {
        let [number, nanos] = &*self.0;
        let step = number.load(Ordering::Relaxed).checked_sub(1)?;
        Some((Step(step), Duration::from_nanos(nanos.load(Ordering::Relaxed))))
    }
}

#[cfg(test)]
mod tests {
    use wire::clock::MonoNanos;
    use wire::event::StepRecord;

    use super::*;

    #[test]
    fn the_newest_step_is_the_last_that_was_seen() {
        let ended = |step: u64, nanos: i64| {
            let step = Step(step);
            Event::Step(StepRecord {
                step,
                begin: MonoNanos(5),
                end: MonoNanos(5 + nanos),
                samples: 0,
                shadow: false,
            })
        };
        let newest = Newest::default();
        assert_eq!(newest.step(), None);
        newest.see(&[ended(0, 10), ended(1, 20)]);
        newest.see(&[]);
        assert_eq!(newest.step(), Some((Step(1), Duration::from_nanos(20))));
    }
}
