//! When the last collectives ran that no kernel of the device carries: a burst, which sees only kernels and copies, cannot
//! tell how much of them lay behind compute.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wire::clock::MonoNanos;

/// Collectives that are remembered: as many as the longest burst has, 5 s, at 1,600 a second.
const MOST: usize = 8_192;

/// Begin and end of collectives, in the order in which they ended. Shared by the communication thread, which adds to it,
/// and the thread that records bursts.
#[derive(Clone, Default)]
pub(super) struct Recent(Arc<Mutex<VecDeque<(MonoNanos, MonoNanos)>>>);

impl Recent {
    fn all(&self) -> MutexGuard<'_, VecDeque<(MonoNanos, MonoNanos)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, start: MonoNanos, end: MonoNanos) {
        let mut all = self.all();
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back((start, end));
    }

    /// Those that ran at some time from `from` to `until`.
    pub(super) fn between(&self, from: MonoNanos, until: MonoNanos) -> Vec<(MonoNanos, MonoNanos)> {
        self.all().iter().copied().filter(|&(start, end)| end >= from && start <= until).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_kept_and_only_those_of_the_time_are_told() {
        let recent = Recent::default();
        (0..MOST as i64 + 10).for_each(|at| recent.add(MonoNanos(10 * at), MonoNanos(10 * at + 5)));
        assert_eq!(recent.between(MonoNanos(0), MonoNanos(99)), []);
        let found = recent.between(MonoNanos(206), MonoNanos(220));
        assert_eq!(found, [(MonoNanos(210), MonoNanos(215)), (MonoNanos(220), MonoNanos(225))]);
    }
}
