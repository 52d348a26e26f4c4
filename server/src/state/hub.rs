//! The hub: the task that owns all runs. It applies commands and publishes snapshots.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use wire::ids::RunId;

use super::collection::Collection;
use super::command::Command;
use super::query::RunQuery;
use super::snapshot::Snapshot;
use super::task::Task;
use crate::clock::ServerClock;
use crate::metrics::Metrics;
use crate::store::directory::Layout;
use crate::store::log::Log;
use crate::vitals::Vitals;

/// The largest number of commands that wait for the hub. Each holds at most one decoded batch of about 6 MB at the very
/// most. A usual batch is 20 KB, so the queue takes about 5 MB.
const QUEUE: usize = 256;

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
    /// Starts the hub with restored runs. Batches are made durable by `log`. `layout` is the place of runs that leave memory.
    /// Without it, no run leaves memory.
    #[must_use]
    pub fn start(
        runs: Collection,
        clock: ServerClock,
        metrics: Arc<Metrics>,
        vitals: &Vitals,
        log: Log,
        layout: Option<Layout>,
    ) -> Self {
        let (commands, queue) = mpsc::channel(QUEUE);
        let (publisher, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        vitals.spawn_task("hub", Task::new(runs, clock, metrics, publisher, log, layout).run(queue));
        Self { commands, snapshots }
    }

    /// Sends a command. Waits while the queue is full.
    ///
    /// # Errors
    /// Returns an error if the hub has stopped.
    pub async fn send(&self, command: Command) -> Result<(), Stopped> {
        self.commands.send(command).await.map_err(|_| Stopped)
    }

    /// Tells the hub that a run is viewed. Does not wait: if the queue is full, the command is lost, and a live stream soon
    /// sends it again.
    pub fn view(&self, run: RunId) {
        let _lost_when_full = self.commands.try_send(Command::View { run });
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

    /// Asks about a run and waits for the answer.
    ///
    /// # Errors
    /// Returns an error if the hub has stopped or has dropped the query.
    pub async fn query<T>(
        &self,
        run: RunId,
        query: impl FnOnce(oneshot::Sender<T>) -> RunQuery,
    ) -> Result<T, Stopped> {
        self.ask(|reply| Command::Query { run, query: query(reply) }).await
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
