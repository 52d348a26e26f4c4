//! The hub: the task that owns all runs. It applies commands and publishes snapshots.

use std::sync::Arc;

use analysis::step::StepAnalysis;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use wire::batch::Batch;
use wire::burst::BurstRequest;
use wire::clock::ServerNanos;
use wire::ids::{Rank, RunId, Step};

use super::collection::Collection;
use super::devices::Devices;
use super::not_shown::NotShown;
use super::older::Between;
use super::refusal::ApplyError;
use super::run::ReportWork;
use super::snapshot::{RunSnapshot, Snapshot};
use super::steps::Placed;
use super::task::Task;
use crate::clock::ServerClock;
use crate::metrics::Metrics;
use crate::store::directory::Layout;
use crate::vitals::Vitals;

/// The largest number of commands that wait for the hub. Each holds at most one decoded batch of about 6 MB at the very
/// most. A usual batch is 20 KB, so the queue takes about 5 MB.
const QUEUE: usize = 256;

/// A command for the hub.
pub enum Command {
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
    /// Get the report as of the time when a step was the newest one.
    ReportAt {
        /// The run.
        run: RunId,
        /// The step.
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
    /// Ask ranks for a burst.
    AskForBurst {
        /// The run.
        run: RunId,
        /// The rank, or `None` for all ranks.
        rank: Option<Rank>,
        /// The length of the burst, in milliseconds.
        millis: u16,
        /// The request, or `None` if there is no such run or rank.
        reply: oneshot::Sender<Option<BurstRequest>>,
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
            Self::Placed { run, .. }
            | Self::PlacedBetween { run, .. }
            | Self::Steps { run, .. }
            | Self::ReportAt { run, .. }
            | Self::Devices { run, .. }
            | Self::AskForBurst { run, .. }
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
    /// The burst that the batch's rank is asked for.
    pub asked: Option<BurstRequest>,
}

/// A handle to the hub. Clones share it.
#[derive(Clone)]
pub struct Hub {
    commands: mpsc::Sender<Command>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
}

/// The error of a command without an answer: the server is shutting down, or too many requests wait for runs that are
/// read from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is busy or shutting down: try again")]
pub struct Stopped;

impl Hub {
    /// Starts the hub with replayed runs. `layout` is the place of runs that leave memory. Without it, no run leaves
    /// memory.
    #[must_use]
    pub fn start(
        runs: Collection,
        clock: ServerClock,
        metrics: Metrics,
        vitals: &Vitals,
        layout: Option<Layout>,
    ) -> Self {
        let (commands, queue) = mpsc::channel(QUEUE);
        let (publisher, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        vitals.spawn_task("hub", Task::new(runs, clock, metrics, publisher, layout).run(queue));
        Self { commands, snapshots }
    }

    /// Sends a command. Waits while the queue is full.
    ///
    /// # Errors
    /// Returns an error if the hub has stopped.
    pub async fn send(&self, command: Command) -> Result<(), Stopped> {
        self.commands.send(command).await.map_err(|_| Stopped)
    }

    /// Sends a command with a reply channel and waits for the reply.
    ///
    /// # Errors
    /// Returns an error if the hub has stopped or has dropped the command.
    pub async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// Returns true if a command would have to wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.commands.capacity() == 0
    }

    /// Returns the newest snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// Returns a receiver of snapshots. A slow reader sees only the newest one.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }
}
