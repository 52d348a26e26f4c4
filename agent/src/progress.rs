//! The progress of the training thread: when its newest steps ended. That thread writes it, and threads that act on a step that
//! lasts too long read it. Neither waits for the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use wire::clock::MonoNanos;

/// The number of steps whose lengths are remembered.
const REMEMBERED: usize = 32;
/// The number of steps after which their usual length counts as known. The first ones are slower.
const MIN_STEPS: u64 = 8;
/// Stands for the beginning of a step while there is none.
const NONE: i64 = i64::MIN;

/// The newest steps of a training thread. A clone is of the same thread.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// When the current step began, or [`NONE`].
    begun: AtomicI64,
    /// The number of steps that ended.
    ended: AtomicU64,
    /// The lengths of the newest steps, in nanoseconds.
    lengths: [AtomicU64; REMEMBERED],
}

impl Default for Shared {
    fn default() -> Self {
        let lengths = [const { AtomicU64::new(0) }; REMEMBERED];
        Self { begun: AtomicI64::new(NONE), ended: AtomicU64::new(0), lengths }
    }
}

impl Progress {
    /// Notes that a step begins now, unless one is in progress.
    pub fn begins(&self, now: MonoNanos) {
        // Only the training thread writes.
        if self.0.begun.load(Ordering::Relaxed) == NONE {
            self.0.begun.store(now.0, Ordering::Relaxed);
        }
    }

    /// Notes that a step ends now, and that the next one begins.
    pub fn step_ended(&self, now: MonoNanos) {
        let begun = self.0.begun.swap(now.0, Ordering::Relaxed);
        if begun != NONE {
            let at = self.0.ended.fetch_add(1, Ordering::Relaxed) as usize % REMEMBERED;
            self.0.lengths[at].store((now - MonoNanos(begun)).max(0).unsigned_abs(), Ordering::Relaxed);
        }
    }

    /// Notes that no step is in progress until the next one begins.
    pub fn pauses(&self) {
        self.0.begun.store(NONE, Ordering::Relaxed);
    }

    /// Returns when the current step began; `None` if there is none. No other step has the same time.
    #[must_use]
    pub fn begun(&self) -> Option<MonoNanos> {
        let begun = self.0.begun.load(Ordering::Relaxed);
        (begun != NONE).then_some(MonoNanos(begun))
    }

    /// Returns the median length of the newest steps; `None` while there were few.
    #[must_use]
    pub fn usual(&self) -> Option<Duration> {
        let ended = self.0.ended.load(Ordering::Relaxed);
        if ended < MIN_STEPS {
            return None;
        }
        let known = self.0.lengths.iter().take(ended.min(REMEMBERED as u64) as usize);
        let mut lengths: Vec<u64> = known.map(|nanos| nanos.load(Ordering::Relaxed)).collect();
        let middle = lengths.len() / 2;
        let (_, median, _) = lengths.select_nth_unstable(middle);
        Some(Duration::from_nanos(*median))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_length_is_the_median_of_the_newest_steps() {
        let (progress, mut now) = (Progress::default(), MonoNanos(5));
        let mut step = |nanos: i64| {
            now = now + nanos;
            progress.step_ended(now);
            progress.usual().map(|usual| usual.as_nanos())
        };
        step(1_000);
        let few: Vec<_> = (0..7).map(|_| step(10)).collect();
        assert_eq!(few, [None; 7], "the first end is the beginning of the first step that is known");
        assert_eq!(step(900), Some(10));
        // Steps of another length are the usual ones after half of those that are remembered.
        let longer: Vec<_> = (0..20).map(|_| step(40)).collect();
        assert_eq!((longer[3], longer[19]), (Some(10), Some(40)));
    }

    #[test]
    fn no_step_lasts_while_training_pauses() {
        let progress = Progress::default();
        assert_eq!(progress.begun(), None);
        progress.begins(MonoNanos(10));
        progress.begins(MonoNanos(20));
        assert_eq!(progress.begun(), Some(MonoNanos(10)));
        progress.step_ended(MonoNanos(30));
        assert_eq!(progress.begun(), Some(MonoNanos(30)));
        progress.pauses();
        assert_eq!(progress.begun(), None);
        progress.step_ended(MonoNanos(90));
        assert_eq!(progress.0.ended.load(Ordering::Relaxed), 1, "the length of that one is not known");
    }
}
