//! The selection of steps that a job with step marks records in full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use wire::ids::Step;

/// The selection of steps that are recorded in full. The training thread queries it, and the drain thread adapts it to
/// the cost of recording. Clones share their state.
///
/// Steps are selected by index, so that all ranks select the same ones: a step is as fast as its slowest rank.
#[derive(Clone, Default)]
pub(crate) struct Sampling {
    /// One step in this many is a shadow step; 0 or 1 for none.
    shadow_every: u64,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// One step in this many is recorded in full; 0 and 1 mean all.
    interval: AtomicU32,
    has_marks: AtomicBool,
}

impl Sampling {
    /// Selects every step except one shadow step in `shadow_every`.
    pub(crate) fn new(shadow_every: u64) -> Self {
        Self { shadow_every, shared: Arc::default() }
    }

    /// Notes that the job marks its steps. Otherwise the agent records the steps that its caller selects.
    pub(crate) fn begin(&self) {
        self.shared.has_marks.store(true, Ordering::Relaxed);
    }

    /// Returns true if the job marks its steps.
    pub(crate) fn is_in_use(&self) -> bool {
        self.shared.has_marks.load(Ordering::Relaxed)
    }

    /// Records one step in `interval` in full from now on.
    pub(crate) fn set(&self, interval: u32) {
        self.shared.interval.store(interval, Ordering::Relaxed);
    }

    /// Returns k: one step in k is recorded in full.
    pub(crate) fn interval(&self) -> u32 {
        self.shared.interval.load(Ordering::Relaxed).max(1)
    }

    /// Returns true if only the length of `step` is recorded, because it is a shadow step or not a sampled step.
    ///
    /// Shadow steps lie halfway between multiples of the interval, because jobs tend to log and to save at multiples.
    /// Two shadow steps never follow each other, so each has recorded neighbors that do nothing special.
    pub(crate) fn is_shadow(&self, step: Step) -> bool {
        let interval = self.shadow_every;
        let is_chosen = interval >= 2 && step.0 % interval == interval / 2;
        is_chosen || !step.0.is_multiple_of(u64::from(self.interval()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_in_k_is_recorded_and_sampled_steps_are_not_shadow_steps() {
        let sampling = Sampling::new(10);
        let recorded = || (0..20).filter(|&step| !sampling.is_shadow(Step(step))).collect::<Vec<_>>();
        assert_eq!(recorded().len(), 18, "5 and 15 are shadow steps");
        sampling.set(4);
        assert_eq!(recorded(), [0, 4, 8, 12, 16]);
        sampling.set(1);
        assert_eq!(recorded().len(), 18);
    }

    #[test]
    fn a_disabled_agent_records_no_shadow_steps() {
        assert!((0..100).all(|step| !Sampling::default().is_shadow(Step(step))));
    }
}
