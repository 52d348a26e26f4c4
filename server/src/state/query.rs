//! Queries: what the hub is asked of one run. Longer work with the answer happens outside of the hub.

use std::sync::Arc;

use analysis::step::StepAnalysis;
use tokio::sync::oneshot;
use wire::ids::{Rank, Step};
use wire::stacks::Stacks;
use wire::traces::TraceSummary;
use wire::usage::Usage;
use wire::views::{ModuleLayouts, RecentUsage};

use super::recall::older::PlacedSteps;
use super::recall::request::PlacedReply;
use super::run::ReportWork;
use super::run::devices::Devices;
use super::run::usage::MeasureHistory;
use super::snapshot::RunSnapshot;

/// A question about one run. The answer is empty or `None` if there is no such run.
pub enum RunQuery {
    /// One step on the ranks' clocks, for a waterfall. It is read from disk if its records have left memory.
    Placed {
        /// The step; `None` for the newest complete one.
        step: Option<Step>,
        /// The step.
        reply: PlacedReply,
    },
    /// A range of steps on the ranks' clocks, for exports.
    PlacedBetween {
        first: Step,
        /// The last step, inclusive.
        last: Step,
        /// The largest number of steps, if they are in memory.
        most: usize,
        /// The steps that are in memory, or what is needed to read older ones.
        reply: oneshot::Sender<PlacedSteps>,
    },
    /// The analyzed steps in memory, oldest first.
    Steps {
        first: Step,
        /// The last step, inclusive.
        last: Step,
        reply: oneshot::Sender<Vec<Arc<StepAnalysis>>>,
    },
    /// The report over the newest steps, once all closed steps are analyzed.
    Report {
        /// The number of steps; `usize::MAX` for all steps in memory.
        newest: usize,
        /// What the report needs.
        reply: oneshot::Sender<Option<ReportWork>>,
    },
    /// The report over a range of steps in memory, as of the time when the last of them was the newest one.
    ReportBetween {
        /// The first step; `None` for as many as the report of a live run covers.
        first: Option<Step>,
        /// The last step, inclusive.
        last: Step,
        /// What the report needs.
        reply: oneshot::Sender<Option<ReportWork>>,
    },
    /// The run with its report, read from disk if it has left memory.
    Open {
        /// The snapshot, once it has a report.
        reply: oneshot::Sender<Option<Arc<RunSnapshot>>>,
    },
    /// The ranks' devices.
    Devices {
        /// The devices of the ranks that have reported any.
        reply: oneshot::Sender<Devices>,
    },
    /// One measure of the ranks' devices or hosts over time.
    Usage {
        /// The measure.
        usage: Usage,
        /// The measure of each rank.
        reply: oneshot::Sender<Vec<MeasureHistory>>,
    },
    /// The last minute of the ranks' devices and hosts.
    RecentUsage {
        /// The summary of each measure that some rank reports.
        reply: oneshot::Sender<Vec<RecentUsage>>,
    },
    /// The newest stacks of each rank that was asked for them.
    Stacks { reply: oneshot::Sender<Vec<(Rank, Arc<Stacks>)>> },
    /// What ran on each rank, if the run is imported from traces.
    TraceSummaries {
        /// The summaries.
        reply: oneshot::Sender<Vec<(Rank, Arc<TraceSummary>)>>,
    },
    /// The layouts of the run's buckets, by module.
    Layouts { reply: oneshot::Sender<Vec<ModuleLayouts>> },
}
