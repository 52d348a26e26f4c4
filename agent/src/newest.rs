//! The newest step. The drain thread writes it. Threads that act once in several steps read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wire::event::Event;
use wire::ids::Step;

/// The index of the newest step plus one (0 before the first), and its length in nanoseconds. The two are read one
/// after the other and may belong to neighboring steps.
#[derive(Clone, Default)]
pub(crate) struct Newest(Arc<[AtomicU64; 2]>);

impl Newest {
    /// Finds the newest step in `events`, whose last record is the newest.
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

    /// Returns the newest step that ended and its length. The value is as old as the newest batch at most.
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
    fn the_newest_step_is_the_last_recorded_one() {
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
