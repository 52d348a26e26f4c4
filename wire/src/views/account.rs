//! The account of a run's wall time: where it goes, over all ranks together.

use serde::{Deserialize, Serialize};

/// What a job spends its wall time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Spending {
    /// Forward and backward passes, with the communication that they hide.
    Compute,
    /// Time in forward and backward passes in which the training threads of all ranks wait for something other than a core. It is known
    /// only where a verdict has found it; otherwise it is part of the compute.
    WaitsInPasses,
    /// The parameter update.
    Optimizer,
    /// Waiting for input, on all ranks alike.
    Input,
    /// Copies of input to the device, on all ranks alike.
    Copies,
    /// Collectives that no compute hides.
    Communication,
    /// Waiting for ranks that need longer than the usual one in a step.
    UnevenRanks,
    /// Checkpoints.
    Checkpoints,
    /// Evaluation.
    Evaluation,
    /// Garbage collection of Python.
    GarbageCollection,
    /// Compilation after the warm-up.
    Compilation,
    /// Devices that run nothing, and nothing recorded says why.
    Idle,
    /// The time in no phase of the step, on all ranks alike.
    OtherInSteps,
    /// Steps that are not observed: warm-up, shadow steps, steps with missing records.
    OtherSteps,
    /// Stretches without a completed step that count as hangs.
    Hangs,
    /// From the start of the processes to the first step.
    Start,
    /// From the last step of an attempt to the first step of the next one.
    Recovery,
    /// Steps that an earlier attempt did already.
    Repeated,
    /// Between steps.
    Between,
    /// After the last step.
    Ending,
}

impl Spending {
    /// Returns the name shown to users.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Compute => "forward and backward",
            Self::WaitsInPasses => "waits within passes",
            Self::Optimizer => "optimizer",
            Self::Input => "input",
            Self::Copies => "copies to the device",
            Self::Communication => "exposed communication",
            Self::UnevenRanks => "waiting for slower ranks",
            Self::Checkpoints => "checkpoints",
            Self::Evaluation => "evaluation",
            Self::GarbageCollection => "garbage collection",
            Self::Compilation => "compilation",
            Self::Idle => "device idle",
            Self::OtherInSteps => "other in steps",
            Self::OtherSteps => "steps not observed",
            Self::Hangs => "hangs",
            Self::Start => "start",
            Self::Recovery => "recovery",
            Self::Repeated => "repeated steps",
            Self::Between => "between steps",
            Self::Ending => "ending",
        }
    }

    /// Returns true for what training consists of.
    #[must_use]
    pub fn is_useful(self) -> bool {
        matches!(self, Self::Compute | Self::Optimizer)
    }
}

/// The account of the wall time (`docs/metrics.md`, "Account"). Its entries sum to the wall time, to the nanosecond.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Account {
    /// The wall time that is accounted for, in nanoseconds.
    pub wall_nanos: u64,
    /// True if that is the wall time of the whole run; false if it is that of the observed steps.
    pub is_whole_run: bool,
    /// What it is spent on, the largest first. What takes no time is left out.
    pub entries: Vec<AccountEntry>,
}

/// One entry of an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccountEntry {
    /// What the time is spent on.
    pub spending: Spending,
    /// The wall time, in nanoseconds.
    pub nanos: u64,
}

impl Account {
    /// Returns the time of an entry as a share of the wall time, 0 to 1.
    #[must_use]
    pub fn share(&self, entry: &AccountEntry) -> f64 {
        entry.nanos as f64 / self.wall_nanos.max(1) as f64
    }

    /// Returns the time that is spent on one thing, in nanoseconds.
    #[must_use]
    pub fn nanos_of(&self, spending: Spending) -> u64 {
        self.entries.iter().filter(|entry| entry.spending == spending).map(|entry| entry.nanos).sum()
    }
}
