//! The reasons why a step of a run cannot be shown.

use wire::ids::{RunId, Step};

use super::stored::{Lost, NotRead};
use crate::state::steps::Steps;

/// The largest number of damaged files that a sentence names.
const MAX_NAMED: usize = 3;

/// The reason why a step cannot be shown, as a clause without a period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotShown {
    /// The run does not exist.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// The step's records are not stored and will not be.
    #[error("{0}")]
    Gone(String),
    /// The step may still arrive.
    #[error("{0}")]
    NotYet(String),
    /// The step does not fit into memory.
    #[error("{0}")]
    TooLarge(String),
    /// The server is busy, and the client may try again.
    #[error("{0}")]
    Busy(String),
}

impl NotShown {
    /// Returns true if trying again gives the same answer. The step is then not offered.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::TooLarge(_))
    }

    /// Returns the reason for a request of the newest step while no step is complete.
    #[must_use]
    pub fn no_step(run: &RunId) -> Self {
        Self::NotYet(format!("run {run} has no step yet that all of its ranks have ended"))
    }

    /// Returns the reason for a step that is newer than all analyzed steps, or `None` if it is not.
    #[must_use]
    pub fn not_yet(run: &RunId, steps: &Steps, step: Step) -> Option<Self> {
        match steps.range() {
            None => Some(Self::no_step(run)),
            Some((_, last)) => (step > last).then(|| {
                Self::NotYet(format!("step {step} of run {run} has not arrived: the newest is {last}"))
            }),
        }
    }

    /// Returns the reason for a step of which no file has records.
    #[must_use]
    pub fn gone(run: &RunId, steps: &Steps, step: Step, lost: &[Lost]) -> Self {
        if !lost.is_empty() {
            let named = lost.iter().take(MAX_NAMED).map(|lost| lost.damage.reason.as_str());
            let named: Vec<&str> = named.collect();
            let more = if lost.len() > MAX_NAMED { "; and more" } else { "" };
            let named = named.join("; ");
            return Self::Gone(format!("the records of step {step} are damaged on disk: {named}{more}"));
        }
        if steps.find_analyzed(step).is_some() {
            return Self::Gone(format!(
                "the records of step {step} were stored, but files of run {run} have been removed"
            ));
        }
        let (first, last) = steps.range().unwrap_or((step, step));
        Self::Gone(format!(
            "no stored batch has records of step {step}: too few ranks sent them, or they were lost before the server \
             received them (run {run} has steps {first} to {last} in view)"
        ))
    }

    /// Returns the reason for a step that could not be read from disk.
    #[must_use]
    pub fn not_read(run: &RunId, step: Step, error: &NotRead) -> Self {
        let instead = format!("`paceline export {run} --steps {step}..{step}` has no such limit");
        match error {
            NotRead::TooLarge { .. } => Self::TooLarge(format!("{error}: {instead}")),
            NotRead::TooLong { .. } => Self::Busy(format!("{error}; {instead}")),
            NotRead::Store(crate::store::StoreError::Content { .. }) => Self::Gone(error.to_string()),
            NotRead::Store(_) => Self::Busy(error.to_string()),
        }
    }
}
