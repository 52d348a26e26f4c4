//! Views: what a server answers in JSON. The analysis, the report, the API and the browser use the same types.
//!
//! A figure that cannot be computed is never 0. In a report it is a [`Figure`], which says why it is missing.

use serde::{Deserialize, Serialize};

mod access;
mod account;
pub mod captures;
mod collectives;
pub mod comparison;
mod figure;
pub mod goodput;
pub mod imports;
mod memory;
mod report;
mod run;
pub mod scaling;
mod verdict;
pub mod what_if;

pub use access::{Access, UnauthorizedRequests};
pub use account::{Account, AccountEntry, Spending};
pub use collectives::{
    AlphaBeta, BucketParameters, BucketStats, CollectiveCost, Group, GroupStats, LastRank, LatencyHistogram,
    OneGroup,
};
pub use figure::{Figure, Gap, GapKind, Missing};
pub use memory::{MemoryGrowth, MemoryKind, TimeLeft};
pub use report::{
    BaselineRun, ComputedOn, FlopsUtilization, ModuleLayouts, OwnOverhead, RankBurst, RankClock, RankDevice,
    RankDrops, RankLedger, RankStacks, RecentUsage, Report, ScalingEfficiency, ScalingRule, Spread,
};
pub use run::{
    AttributeKind, AttributeRanks, Failure, Hang, HostRanks, RankEvent, RankEventKind, RunState, RunSummary,
    Standing, WorstVerdict,
};
pub use verdict::{
    Cause, ChangePoint, CodeLine, Confidence, Culprit, Growth, PastFault, Persistence, Recurrence, Verdict,
    VerdictState,
};

/// A message on the live stream, in addition to the columns of [`crate::live`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LiveView {
    /// The list of runs, newest first, on the stream without a run.
    Runs {
        /// All runs.
        runs: Vec<RunSummary>,
    },
    /// The summary and the report of one run, on the stream of that run.
    Run {
        /// The run's line in the list of runs.
        summary: Box<RunSummary>,
        /// The report over the recent window.
        report: Box<Report>,
    },
    /// The requested run does not exist.
    NoSuchRun,
}

/// An error that the API answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiError {
    /// What is wrong, where, and how to fix it.
    pub error: String,
}
