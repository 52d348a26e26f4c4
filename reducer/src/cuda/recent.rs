//! The times of recent staged collectives. They have no kernels, so a burst, which records only kernels and copies,
//! cannot measure how much of them was hidden.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wire::clock::MonoNanos;

/// The largest number of stored collectives: those of the longest burst, 5 s, at 1,600 per second.
const MAX_RECENT: usize = 8_192;

/// The starts and ends of collectives, in the order in which they ended. The communication thread adds to the list, and
/// the thread that records bursts reads it.
#[derive(Clone, Default)]
pub(super) struct Recent(Arc<Mutex<VecDeque<(MonoNanos, MonoNanos)>>>);

impl Recent {
    fn all(&self) -> MutexGuard<'_, VecDeque<(MonoNanos, MonoNanos)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, start: MonoNanos, end: MonoNanos) {
        let mut all = self.all();
        if all.len() == MAX_RECENT {
            all.pop_front();
        }
        all.push_back((start, end));
    }

    /// Returns the collectives that overlap the time from `from` to `until`.
    pub(super) fn overlapping(&self, from: MonoNanos, until: MonoNanos) -> Vec<(MonoNanos, MonoNanos)> {
        self.all().iter().copied().filter(|&(start, end)| end >= from && start <= until).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_collectives_are_stored_and_only_overlapping_ones_returned() {
        let recent = Recent::default();
        (0..MAX_RECENT as i64 + 10).for_each(|at| recent.add(MonoNanos(10 * at), MonoNanos(10 * at + 5)));
        assert_eq!(recent.overlapping(MonoNanos(0), MonoNanos(99)), []);
        let found = recent.overlapping(MonoNanos(206), MonoNanos(220));
        assert_eq!(found, [(MonoNanos(210), MonoNanos(215)), (MonoNanos(220), MonoNanos(225))]);
    }
}
