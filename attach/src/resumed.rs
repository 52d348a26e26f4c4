//! The step that the job resumes, until the observer thread sends it.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::ids::Step;

/// The step, plus 1; 0 if the job has not stated it.
static STATED: AtomicU64 = AtomicU64::new(0);

/// Remembers the step. Only the first one counts.
pub(crate) fn learn(step: Step) {
    let _first = STATED.compare_exchange(0, step.0.saturating_add(1), Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns the step; `None` if the job has not stated it.
pub(crate) fn stated() -> Option<Step> {
    STATED.load(Ordering::Relaxed).checked_sub(1).map(Step)
}
