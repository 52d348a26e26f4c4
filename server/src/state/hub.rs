//! The one task that owns all runs: it takes commands, applies them, and publishes snapshots.

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

/// Commands waiting for the hub. Each holds at most one decoded batch of some 6 MB at its very largest; a
/// usual one is 20 KB, so the queue is about 5 MB.
const QUEUE: usize = 256;

/// What handlers ask of the hub.
pub enum Command {
    /// Take a batch in. Answered when it was applied.
    Apply {
        /// The batch, already durable.
        batch: Box<Batch>,
        /// When it came.
        received: ServerNanos,
        /// Whether it was taken in, where that is not sure: two batches may each be the first of a run.
        reply: Option<oneshot::Sender<Result<(), ApplyError>>>,
        /// The memory that it takes, given back when it is applied.
        room: Option<OwnedSemaphorePermit>,
    },
    /// May this batch come in at all? Asked before it is made durable.
    Check {
        /// The batch.
        batch: Box<Batch>,
        /// The batch back, with the answer.
        reply: oneshot::Sender<Checked>,
    },
    /// One step on the ranks' clocks (`None`: the newest complete one), for a waterfall.
    Placed {
        /// Of which run.
        run: RunId,
        /// Of which step.
        step: Option<Step>,
        /// The step, from disk if its records have left memory.
        reply: oneshot::Sender<Result<Placed, NotShown>>,
    },
    /// A range of steps on the ranks' clocks, for exports.
    PlacedBetween {
        /// Of which run.
        run: RunId,
        /// From which step.
        first: Step,
        /// To which step, inclusive.
        last: Step,
        /// How many of them at most, if they are in memory.
        most: usize,
        /// Steps that are in memory, or what is needed to read older ones.
        reply: oneshot::Sender<Between>,
    },
    /// Kept steps, oldest first, to read without the hub.
    Steps {
        /// Of which run.
        run: RunId,
        /// From which step.
        first: Step,
        /// To which step, inclusive.
        last: Step,
        /// Empty when nothing of it is kept.
        reply: oneshot::Sender<Vec<Arc<StepAnalysis>>>,
    },
    /// The report as it was when a step was the newest one.
    ReportAt {
        /// Of which run.
        run: RunId,
        /// The step.
        last: Step,
        /// `None` when there is no such run.
        reply: oneshot::Sender<Option<ReportWork>>,
    },
    /// What is known of the ranks' devices.
    Devices {
        /// Of which run.
        run: RunId,
        /// Empty when there is no such run, or none of its devices can be looked at.
        reply: oneshot::Sender<Devices>,
    },
    /// Ask ranks for a burst.
    AskForBurst {
        /// Of which run.
        run: RunId,
        /// Which rank; `None` for all.
        rank: Option<Rank>,
        /// How long, in milliseconds.
        millis: u16,
        /// `None` when there is no such run or rank.
        reply: oneshot::Sender<Option<BurstRequest>>,
    },
    /// A run with its report, from disk if it has left memory.
    Open {
        /// Which run.
        run: RunId,
        /// Sent once the report is there; `None` when there is no such run.
        reply: oneshot::Sender<Option<Arc<RunSnapshot>>>,
    },
    /// The report over the newest steps, once all that have closed are analysed.
    Report {
        /// Of which run.
        run: RunId,
        /// How many of them; `usize::MAX` for all kept ones.
        newest: usize,
        /// `None` when there is no such run.
        reply: oneshot::Sender<Option<ReportWork>>,
    },
}

impl Command {
    /// The run that it is about.
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

/// What the hub says of a batch before it is made durable.
pub struct Checked {
    /// The batch.
    pub batch: Box<Batch>,
    /// Whether it may come in.
    pub verdict: Result<(), ApplyError>,
    /// True when the server does not know its run yet.
    pub is_first: bool,
    /// What its rank is asked for.
    pub asked: Option<BurstRequest>,
}

/// A handle to the hub; clones share it.
#[derive(Clone)]
pub struct Hub {
    commands: mpsc::Sender<Command>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
}

/// There is no answer: the server is shutting down, or too many requests wait for runs that are read from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is busy or shutting down: try again")]
pub struct Stopped;

impl Hub {
    /// Starts the task with runs that were replayed from disk. `layout` is where runs lie that leave memory; without
    /// one, none leaves.
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

    /// Hands a command over, waiting while the queue is full.
    ///
    /// # Errors
    /// When the hub has stopped.
    pub async fn send(&self, command: Command) -> Result<(), Stopped> {
        self.commands.send(command).await.map_err(|_| Stopped)
    }

    /// Sends a command that is made around a reply channel, and waits for the reply.
    ///
    /// # Errors
    /// When the hub has stopped.
    pub async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// True when a command would have to wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.commands.capacity() == 0
    }

    /// The newest snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// Snapshots as they come; a slow reader sees only the newest.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }
}
