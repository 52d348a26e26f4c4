//! A run: its state, its line in the list of runs, and what ended it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::verdict::{Cause, Culprit, Verdict, VerdictState};
use crate::ids::{Rank, RunId, Seq, Step};

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Ranks have connected; no step is complete.
    Starting,
    /// The run completes steps.
    Running,
    /// No step completed for max(10 x median step, 10 s). See [`Hang`].
    Hung,
    /// Every rank completed its work and sent its end-of-run message.
    Completed,
    /// A rank ended with an error, or vanished.
    Failed,
}

impl RunState {
    /// Returns the name used in reports, in Prometheus and on the dashboard.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Hung => "hung",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    /// Returns true if no more steps can come.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// A hang: the ranks that the others wait for in a run without progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hang {
    /// The time since the last step completed, or for which a rank has waited in a collective before its first step, in seconds; `None`
    /// for a hang that imported files show.
    pub since_seconds: Option<f64>,
    /// When that time began, on the server's clock, in milliseconds since the Unix epoch.
    pub since_unix_millis: Option<u64>,
    /// The limit that was exceeded, in seconds; `None` for a hang that imported files show.
    pub limit_seconds: Option<f64>,
    /// The ranks whose next collective has not started; empty if it does not show which these are.
    pub ranks: Vec<Rank>,
    /// Sentences for the user.
    pub sentence: String,
    /// Where the main threads of ranks stand, those of [`Hang::ranks`] first. Ranks are sampled when a hang is detected.
    pub standing: Vec<Standing>,
}

/// Where the main threads of some ranks stand in their code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Standing {
    /// The ranks.
    pub ranks: Vec<Rank>,
    /// The line of the user's code, and the function of a library that it called there: `train.py:52 (step)`.
    pub at: String,
}

/// The failure of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// The rank that failed first, as far as records show.
    pub rank: Rank,
    /// The error reported by the launcher or by the rank; empty if neither reported one.
    pub reason: String,
    /// The newest step that the rank finished.
    pub last_step: Option<Step>,
    /// The newest collective that the rank started.
    pub last_collective: Option<Seq>,
    /// When the rank or its launcher was last heard from, on the server's clock, in milliseconds since the Unix epoch.
    pub last_seen_unix_millis: Option<u64>,
    /// The number of other ranks that failed.
    pub others: u32,
    /// How many of these may as well have been the first. If there are any, `rank` is only one of them.
    pub alike: u32,
    /// A sentence for the user.
    pub sentence: String,
}

/// Something that happened to a rank, apart from its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankEvent {
    /// What happened.
    pub kind: RankEventKind,
    /// The rank.
    pub rank: Rank,
    /// When it happened, on the server's clock, in milliseconds since the Unix epoch.
    pub unix_millis: u64,
}

/// What happened to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RankEventKind {
    /// A new process of the rank sent its first batch.
    Restarted,
    /// The rank sent its last batch so far, without an end-of-run message, and has been silent since.
    Silent,
    /// The rank's device reported a critical error.
    Xid {
        /// The code, from NVIDIA's list of Xids.
        code: u64,
    },
    /// The rank's device reported memory errors that it could not correct.
    MemoryErrors {
        /// The number of errors.
        count: u64,
    },
    /// PyTorch's allocator raised out-of-memory errors on the rank's device.
    OutOfMemory {
        /// The number of errors.
        count: u64,
    },
}

/// The ranks that run on one host: a contiguous range of them. A host may have several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostRanks {
    /// The name of the host.
    pub host: String,
    /// The first and the last rank, both included.
    pub ranks: (u32, u32),
}

/// What an attribute of a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttributeKind {
    /// A label, which the user gave the run or some of its ranks.
    Label,
    /// The version of a software component.
    Software,
}

/// The ranks that share the value of an attribute: a contiguous range of them. A value may have several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttributeRanks {
    /// What the attribute is.
    pub kind: AttributeKind,
    /// The name of the label or of the component.
    pub name: String,
    /// The value of the label, or the version.
    pub value: String,
    /// The first and the last rank, both included.
    pub ranks: (u32, u32),
}

/// One line in the list of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// The name of the run. Runs of one name are compared with each other.
    pub name: String,
    /// The labels that all ranks share.
    pub labels: BTreeMap<String, String>,
    /// The state of the run.
    pub state: RunState,
    /// The arrival of the first batch, in milliseconds since the Unix epoch.
    pub started_unix_millis: u64,
    /// The arrival of the last batch, in milliseconds since the Unix epoch.
    pub last_seen_unix_millis: u64,
    /// The number of ranks in the run, of its newest attempt.
    pub ranks_expected: u32,
    /// The largest number of ranks of any attempt.
    pub most_ranks: u32,
    /// True if the run is imported from files: it started when they were imported.
    pub imported: bool,
    /// The number of ranks that sent a batch in the last ten seconds. For a run that has ended: the number of ranks
    /// that sent any batch.
    pub ranks_reporting: u32,
    /// The number of completed steps.
    pub steps: u64,
    /// The newest completed step.
    pub last_step: Option<u64>,
    /// The mean time from one step to the next, in nanoseconds ([`super::Report::period_nanos`]).
    pub step_time_nanos: Option<u64>,
    /// Samples (or tokens) per second over all ranks, over the recent steps.
    pub throughput: Option<f64>,
    /// The number of samples of one rank in one step.
    pub batch: Option<f64>,
    /// The unit of a sample.
    pub sample_unit: String,
    /// The overlap: the hidden share of communication.
    pub overlap_ratio: Option<f64>,
    /// The implied scaling efficiency.
    pub efficiency_implied: Option<f64>,
    /// The sentence shown first: the failure if the run failed, otherwise the worst verdict.
    pub verdict: Option<String>,
    /// The hang, if the run hangs.
    pub hang: Option<Hang>,
    /// The worst verdict in short.
    pub worst: Option<WorstVerdict>,
    /// The step time over the course of the run, in nanoseconds: means of equally many consecutive steps, oldest first,
    /// at most [`RunSummary::COURSE`] of them. Steps that no figure covers (the first ones, shadow steps, steps with
    /// missing ranks) are left out.
    pub step_times: Vec<f32>,
}

impl RunSummary {
    /// The largest number of values in [`Self::step_times`].
    pub const COURSE: usize = 32;
}

/// The worst verdict of a run in short ([`super::Verdict`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorstVerdict {
    /// The culprit; null if none can be named.
    pub culprit: Option<Culprit>,
    /// The cause.
    pub cause: Cause,
    /// The state of the fault after the newest observed step.
    pub state: VerdictState,
    /// The saving from fixing the culprit, as a share of a step that has the fault, 0 to 1; of all observed time for what happens
    /// now and then.
    pub cost_share: f64,
}

impl From<&Verdict> for WorstVerdict {
    fn from(verdict: &Verdict) -> Self {
        Self {
            culprit: verdict.culprit.clone(),
            cause: verdict.cause,
            state: verdict.state,
            cost_share: verdict
                .recurrence
                .as_ref()
                .map_or(verdict.cost_share, |recurrence| recurrence.share_of_time),
        }
    }
}
