//! Why one step of a run cannot be shown.

use wire::ids::{RunId, Step};

use super::run::Run;
use crate::store::steps::{Lost, NotRead};

/// Files with damage that a sentence names.
const MOST_NAMED: usize = 3;

/// Why a step cannot be shown, as a sentence without an end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotShown {
    /// There is no such run.
    #[error("there is no run {0} any more")]
    NoRun(RunId),
    /// Its records are not there and will not be.
    #[error("{0}")]
    Gone(String),
    /// It may come yet.
    #[error("{0}")]
    NotYet(String),
    /// It does not fit into memory.
    #[error("{0}")]
    TooLarge(String),
    /// Not now; come again.
    #[error("{0}")]
    Busy(String),
}

impl NotShown {
    /// True when trying again gives the same answer: the step is not worth offering.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::TooLarge(_))
    }

    /// No step was ever whole, so that there is no newest one.
    #[must_use]
    pub fn no_step(run: &Run) -> Self {
        Self::NotYet(format!("run {} has no step yet that all its ranks have ended", run.id()))
    }

    /// A step that is newer than all that were analysed, if it is.
    #[must_use]
    pub fn not_yet(run: &Run, step: Step) -> Option<Self> {
        match run.analysed_range() {
            None => Some(Self::no_step(run)),
            Some((_, last)) => (step > last).then(|| {
                Self::NotYet(format!("step {step} of run {} is not here: the newest one is {last}", run.id()))
            }),
        }
    }

    /// No file has records of it.
    #[must_use]
    pub fn gone(run: &Run, step: Step, lost: &[Lost]) -> Self {
        if !lost.is_empty() {
            let named = lost.iter().take(MOST_NAMED).map(|lost| lost.damage.reason.as_str());
            let named: Vec<&str> = named.collect();
            let more = if lost.len() > MOST_NAMED { "; and more" } else { "" };
            let named = named.join("; ");
            return Self::Gone(format!("the disk damaged the records of step {step}: {named}{more}"));
        }
        if run.analysed(step).is_some() {
            return Self::Gone(format!(
                "the records of step {step} were stored, but files of run {} have been removed",
                run.id()
            ));
        }
        let (first, last) = run.analysed_range().unwrap_or((step, step));
        Self::Gone(format!(
            "no stored batch has the records of step {step}: fewer ranks than are analysed sent them, or they were lost \
             before the server had them (run {} has steps from {first} to {last} in view)",
            run.id()
        ))
    }

    /// Reading it failed.
    #[must_use]
    pub fn not_read(run: &Run, step: Step, error: &NotRead) -> Self {
        let instead = format!("`paceline export {} --steps {step}..{step}` has no such bound", run.id());
        match error {
            NotRead::TooLarge { .. } => Self::TooLarge(format!("{error}: {instead}")),
            NotRead::TooLong { .. } => Self::Busy(format!("{error}; {instead}")),
            NotRead::Store(crate::store::StoreError::Content { .. }) => Self::Gone(error.to_string()),
            NotRead::Store(_) => Self::Busy(error.to_string()),
        }
    }
}
