//! The time in which stacks are sampled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agent::Progress;
use background::Stop;
use wire::clock::MonoNanos;

/// The time between two looks whether the step has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A time in which stacks are sampled: a length, or less if the process ends or the step that is sampled does. Clones end
/// together.
#[derive(Clone)]
pub struct Window {
    end: Instant,
    stop: Stop,
    step: Option<SampledStep>,
    /// The processor time of the samplers, in nanoseconds.
    spent: Arc<AtomicU64>,
}

/// The step that is sampled: that of the training thread with this progress that began at `begun`.
#[derive(Clone)]
struct SampledStep {
    progress: Progress,
    begun: MonoNanos,
}

impl Window {
    /// Returns the window of a length from now on.
    #[must_use]
    pub fn new(length: Duration, stop: &Stop) -> Self {
        Self { end: Instant::now() + length, stop: stop.clone(), step: None, spent: Arc::default() }
    }

    /// Returns the part of the window in which the step that began at `begun` lasts.
    #[must_use]
    pub(crate) fn clipped_to_step(self, progress: &Progress, begun: MonoNanos) -> Self {
        Self { step: Some(SampledStep { progress: progress.clone(), begun }), ..self }
    }

    /// Returns whether the window is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let has_ended = |step: &SampledStep| step.progress.begun() != Some(step.begun);
        self.stop.is_asked() || self.step.as_ref().is_some_and(has_ended) || Instant::now() >= self.end
    }

    /// Waits for a length of time, or until the window is over.
    pub fn wait(&self, length: Duration) {
        let end = (Instant::now() + length).min(self.end);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_over() {
                return;
            }
            self.stop.wait(if self.step.is_some() { left.min(LOOK_EVERY) } else { left });
        }
    }

    /// Adds the processor time of a sampler on a thread of its own.
    pub fn spend(&self, nanos: u64) {
        self.spent.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns the processor time that was added.
    #[must_use]
    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_with_its_step() {
        let (progress, begun) = (Progress::default(), MonoNanos(7));
        progress.begins(begun);
        let window = Window::new(Duration::from_hours(1), &Stop::default()).clipped_to_step(&progress, begun);
        assert!(!window.is_over());
        std::thread::scope(|scope| {
            scope.spawn(|| window.wait(Duration::from_secs(20)));
            progress.step_ended(MonoNanos(9));
        });
        assert!(window.is_over());
        assert!(Window::new(Duration::ZERO, &Stop::default()).is_over());
    }
}
