//! Commands for the hub.

use std::sync::Arc;

use analysis::step::StepAnalysis;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use wire::batch::Batch;
use wire::clock::ServerNanos;
use wire::ids::{Rank, RunId, Step};
use wire::request::{RecordingRequest, Requests, TraceRequest};
use wire::stacks::Stacks;
use wire::traces::TraceSummary;
use wire::usage::Usage;
use wire::views::captures::TraceComparison;
use wire::views::{ModuleLayouts, RecentUsage};

use super::devices::Devices;
use super::not_shown::NotShown;
use super::older::Between;
use super::refusal::ApplyError;
use super::run::ReportWork;
use super::snapshot::RunSnapshot;
use super::steps::Placed;
use super::usage::MeasureHistory;
use crate::store::losses::Loss;

/// A command for the hub.
pub enum Command {
    /// Note that stored batches of a run were removed from the disk.
    Lost {
        /// The run.
        run: RunId,
        /// What is lost.
        lost: Vec<Loss>,
    },
    /// Accept a batch. Answered once the batch is applied.
    Apply {
        /// The batch, already durable.
        batch: Box<Batch>,
        /// The time of arrival.
        received: ServerNanos,
        /// Whether the batch was accepted. Needed if that is not certain: each of two batches may be the first of a
        /// run.
        reply: Option<oneshot::Sender<Result<(), ApplyError>>>,
        /// The reserved memory, released once the batch is applied.
        room: Option<OwnedSemaphorePermit>,
    },
    /// Check whether a batch may be accepted. Sent before the batch is made durable.
    Check {
        /// The batch.
        batch: Box<Batch>,
        /// The batch, returned with the answer.
        reply: oneshot::Sender<Checked>,
    },
    /// A run is viewed: a page shows it, or a request reads it.
    View {
        /// The run.
        run: RunId,
    },
    /// Get one step on the ranks' clocks (`None`: the newest complete step), for a waterfall.
    Placed {
        /// The run.
        run: RunId,
        /// The step.
        step: Option<Step>,
        /// The step, read from disk if its records have left memory.
        reply: oneshot::Sender<Result<Placed, NotShown>>,
    },
    /// Get a range of steps on the ranks' clocks, for exports.
    PlacedBetween {
        /// The run.
        run: RunId,
        /// The first step.
        first: Step,
        /// The last step, inclusive.
        last: Step,
        /// The largest number of steps, if they are in memory.
        most: usize,
        /// The steps that are in memory, or what is needed to read older ones.
        reply: oneshot::Sender<Between>,
    },
    /// Get the analyzed steps in memory, oldest first, to read them outside the hub.
    Steps {
        /// The run.
        run: RunId,
        /// The first step.
        first: Step,
        /// The last step, inclusive.
        last: Step,
        /// The steps; empty if none are in memory.
        reply: oneshot::Sender<Vec<Arc<StepAnalysis>>>,
    },
    /// Get the report over a range of steps in memory, as of the time when the last of them was the newest one.
    ReportBetween {
        /// The run.
        run: RunId,
        /// The first step; `None` for as many as the report of a live run covers.
        first: Option<Step>,
        /// The last step, inclusive.
        last: Step,
        /// What the report needs, or `None` if there is no such run.
        reply: oneshot::Sender<Option<ReportWork>>,
    },
    /// Get the ranks' devices.
    Devices {
        /// The run.
        run: RunId,
        /// The devices; empty if there is no such run, or if none of its ranks has reported a device.
        reply: oneshot::Sender<Devices>,
    },
    /// Get one measure of the ranks' devices or hosts over time.
    Usage {
        /// The run.
        run: RunId,
        /// The measure.
        usage: Usage,
        /// The measure of each rank; empty if there is no such run.
        reply: oneshot::Sender<Vec<MeasureHistory>>,
    },
    /// Get the last minute of the ranks' devices and hosts, summarized by measure.
    RecentUsage {
        /// The run.
        run: RunId,
        /// The summary of each measure that some rank reports; empty if there is no such run.
        reply: oneshot::Sender<Vec<RecentUsage>>,
    },
    /// Ask ranks for a burst.
    AskForBurst {
        /// The run.
        run: RunId,
        /// The rank, or `None` for all ranks.
        rank: Option<Rank>,
        /// The length of the burst, in milliseconds.
        millis: u16,
        /// The request, or `None` if there is no such run or rank.
        reply: oneshot::Sender<Option<RecordingRequest>>,
    },
    /// Ask ranks for their stacks.
    AskForStacks {
        /// The run.
        run: RunId,
        /// The rank, or `None` for all ranks.
        rank: Option<Rank>,
        /// How long to sample, in milliseconds.
        millis: u16,
        /// The request, or `None` if there is no such run or rank.
        reply: oneshot::Sender<Option<RecordingRequest>>,
    },
    /// Ask ranks for a trace of some steps.
    AskForTrace {
        /// The run.
        run: RunId,
        /// The ranks.
        ranks: Vec<Rank>,
        /// The request.
        request: TraceRequest,
    },
    /// Two traces were compared.
    Traced {
        /// The run.
        run: RunId,
        /// What differs.
        compared: Box<TraceComparison>,
    },
    /// Get the newest stacks of each rank.
    Stacks {
        /// The run.
        run: RunId,
        /// The stacks; empty if there is no such run, or if none of its ranks was asked.
        reply: oneshot::Sender<Vec<(Rank, Arc<Stacks>)>>,
    },
    /// Get what ran on each rank of an imported run.
    TraceSummaries {
        /// The run.
        run: RunId,
        /// The summaries; empty if there is no such run, or if it is not imported from traces.
        reply: oneshot::Sender<Vec<(Rank, Arc<TraceSummary>)>>,
    },
    /// Get the layouts of a run's buckets.
    Layouts {
        /// The run.
        run: RunId,
        /// The layouts by module; empty if there is no such run, or if none are known.
        reply: oneshot::Sender<Vec<ModuleLayouts>>,
    },
    /// Get a run with its report, read from disk if the run has left memory.
    Open {
        /// The run.
        run: RunId,
        /// The snapshot, sent once it has a report, or `None` if there is no such run.
        reply: oneshot::Sender<Option<Arc<RunSnapshot>>>,
    },
    /// Get the report over the newest steps, once all closed steps are analyzed.
    Report {
        /// The run.
        run: RunId,
        /// The number of steps; `usize::MAX` for all steps in memory.
        newest: usize,
        /// What the report needs, or `None` if there is no such run.
        reply: oneshot::Sender<Option<ReportWork>>,
    },
}

impl Command {
    /// Returns the run that the command concerns.
    #[must_use]
    pub fn run(&self) -> &RunId {
        match self {
            Self::Apply { batch, .. } | Self::Check { batch, .. } => &batch.run,
            Self::View { run }
            | Self::Lost { run, .. }
            | Self::Placed { run, .. }
            | Self::PlacedBetween { run, .. }
            | Self::Steps { run, .. }
            | Self::ReportBetween { run, .. }
            | Self::Devices { run, .. }
            | Self::Usage { run, .. }
            | Self::RecentUsage { run, .. }
            | Self::AskForBurst { run, .. }
            | Self::AskForStacks { run, .. }
            | Self::AskForTrace { run, .. }
            | Self::Traced { run, .. }
            | Self::Stacks { run, .. }
            | Self::TraceSummaries { run, .. }
            | Self::Layouts { run, .. }
            | Self::Open { run, .. }
            | Self::Report { run, .. } => run,
        }
    }
}

/// The hub's answer to [`Command::Check`].
pub struct Checked {
    /// The batch.
    pub batch: Box<Batch>,
    /// Whether the batch may be accepted.
    pub verdict: Result<(), ApplyError>,
    /// Whether the server does not know the batch's run yet.
    pub is_first: bool,
    /// What the batch's rank is asked for.
    pub asked: Requests,
    /// Whether the batch's steps have other numbers than those that its rank sent.
    pub is_renumbered: bool,
}
