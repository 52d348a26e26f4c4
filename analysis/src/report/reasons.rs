//! Why figures of a report are missing.

use wire::views::{Figure, Missing};

use super::facts::RunFacts;
use crate::overlap;
use crate::step::StepAnalysis;

/// Decides why the figures over some steps are missing.
pub(super) struct Reasons {
    /// The reason why figures of steps are missing, if there are no steps.
    no_steps: Option<Missing>,
    /// True if the running times of collectives are not known.
    pub(super) only_enqueued: bool,
    /// The reason why it is not known which part of communication is hidden, if it is not.
    pub(super) unclear: Option<Missing>,
}

impl Reasons {
    /// `all` are all steps of the window, `observed` those that count.
    pub(super) fn new(facts: &RunFacts, all: &[&StepAnalysis], observed: &[&StepAnalysis]) -> Self {
        let no_steps = if facts.instrumentation.is_unmodified_job() && all.is_empty() {
            Missing::NoStepFound
        } else {
            Missing::NoObservedStep
        };
        Self {
            no_steps: observed.is_empty().then_some(no_steps),
            only_enqueued: observed.iter().any(|step| step.is_only_enqueued()),
            unclear: overlap::unclear(observed, |collective| facts.function(collective)),
        }
    }

    /// A figure that needs observed steps.
    pub(super) fn needs_steps<T>(&self, value: impl FnOnce() -> Result<T, Missing>) -> Figure<T> {
        match &self.no_steps {
            Some(reason) => reason.clone().into(),
            None => value().into(),
        }
    }

    /// A figure that needs the running times of collectives, and not only the times when they were enqueued.
    pub(super) fn needs_collectives<T>(&self, value: impl FnOnce() -> Result<T, Missing>) -> Figure<T> {
        if self.only_enqueued { Missing::OnlyEnqueued.into() } else { self.needs_steps(value) }
    }

    /// A figure that rests on which part of communication is hidden.
    pub(super) fn needs_overlap<T>(&self, value: impl FnOnce() -> Result<T, Missing>) -> Figure<T> {
        self.needs_collectives(|| self.unclear.clone().map_or_else(value, Err))
    }

    /// A list over collectives; empty if their running times are not known.
    pub(super) fn list<T>(&self, list: impl FnOnce() -> Vec<T>) -> Vec<T> {
        if self.only_enqueued { Vec::new() } else { list() }
    }
}
