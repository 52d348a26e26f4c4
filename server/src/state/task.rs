//! The task of the [hub](super::hub). It owns all runs, applies commands and publishes snapshots.
//!
//! It does not wait for the disk that a batch is stored on ([`intake`]). Longer work happens on other threads ([`work`]):
//! analyzing a step, making a report, and reading a run or a step from disk ([`recalls`]). A run has at most one of each in
//! progress, and runs take turns, so that none delays the others.

mod intake;
mod publishing;
mod queries;
mod recalls;
mod showing;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use wire::clock::ServerNanos;
use wire::ids::{Rank, RunId};
use wire::request::RecordingRequest;

use super::budget;
use super::collection::{Collection, Held};
use super::command::{Command, Recording};
use super::refusal::ApplyError;
use super::run::Run;
use super::snapshot::Snapshot;
use crate::clock::ServerClock;
use crate::metrics::Metrics;
use crate::store::directory::Layout;
use crate::store::log::Log;
use intake::Stored;
use work::{Lines, Outcome, UnderWay};

/// The interval between snapshots, and the shortest time between two that have new steps: a fifth of the 250 ms from
/// gradient to pixel.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);
/// The divisor for the share of the task's time that publishing may take. With 10,000 live runs, publishing takes about
/// 40 ms.
const PUBLISH_SHARE: u32 = 10;

pub(super) struct Task {
    runs: Collection,
    clock: ServerClock,
    metrics: Arc<Metrics>,
    publisher: watch::Sender<Arc<Snapshot>>,
    log: Log,
    layout: Option<Layout>,
    /// The batches on their way to the disk.
    storing: JoinSet<Stored>,
    threads: JoinSet<Outcome>,
    most_analyzing: usize,
    under_way: UnderWay,
    lines: Lines,
    waiting_for_disk: usize,
    /// Whether all runs take more memory than they may, after all that can be dropped was dropped.
    is_full: bool,
    /// Whether a step was analyzed since the last snapshot.
    has_new_step: bool,
    /// The time when the task began to accept batches.
    accepting_since: ServerNanos,
    /// The time of the last look at the clock.
    looked: ServerNanos,
}

impl Task {
    pub(super) fn new(
        runs: Collection,
        clock: ServerClock,
        metrics: Arc<Metrics>,
        publisher: watch::Sender<Arc<Snapshot>>,
        log: Log,
        layout: Option<Layout>,
    ) -> Self {
        // One core is left for requests.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut task = Self {
            runs,
            clock,
            metrics,
            publisher,
            log,
            layout,
            storing: JoinSet::new(),
            threads: JoinSet::new(),
            most_analyzing: (cores - 1).max(1),
            under_way: UnderWay::default(),
            lines: Lines::default(),
            waiting_for_disk: 0,
            is_full: false,
            has_new_step: false,
            accepting_since: clock.now(),
            looked: clock.now(),
        };
        // Before the first request, so that the list of runs is complete from the first answer on.
        task.show_restored();
        task
    }

    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        let mut publish = tokio::time::interval(PUBLISH_EVERY);
        publish.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The earliest time at which a new step is published without waiting for the tick.
        let mut not_before = Instant::now();
        loop {
            let mut is_due = false;
            tokio::select! {
                command = queue.recv() => match command {
                    Some(command) => self.take(command),
                    None => return,
                },
                Some(stored) = self.storing.join_next() => {
                    // A task that was canceled or panics has dropped its reply.
                    if let Ok(stored) = stored {
                        self.stored(stored);
                    }
                }
                Some(outcome) = self.threads.join_next() => {
                    // Work catches its own panics. A canceled thread has no result.
                    if let Ok(outcome) = outcome {
                        self.settle(outcome);
                    }
                    is_due = self.has_new_step && Instant::now() >= not_before;
                }
                _ = publish.tick() => is_due = true,
            }
            if is_due {
                let (began, had_step) = (Instant::now(), std::mem::take(&mut self.has_new_step));
                self.publish();
                let pause = began.elapsed() * PUBLISH_SHARE;
                publish.reset_after(PUBLISH_EVERY.max(pause));
                not_before = not_before.max(began + if had_step { PUBLISH_EVERY.max(pause) } else { pause });
            }
            self.start_work();
        }
    }

    /// Publishes the runs known from disk, before the first command.
    fn show_restored(&mut self) {
        let snapshot = Snapshot { runs: self.runs.listed(), aside: self.runs.aside.clone() };
        self.publisher.send_replace(Arc::new(snapshot));
        self.metrics.server.set_aside.set(self.runs.aside.len() as i64);
    }

    /// Applies a command once its run is in memory.
    fn take(&mut self, command: Command) {
        let id = command.run();
        if let Some(reason) = self.runs.aside.get(id) {
            let error = ApplyError::Aside { run: id.clone(), reason: reason.clone() };
            intake::refuse(command, error);
            return;
        }
        // To read it would take memory that there is not.
        if self.is_full && matches!(command, Command::Ingest(_)) && self.runs.shelved.contains_key(id) {
            let error = ApplyError::NoRoom { run: id.clone(), most: self.runs.most_bytes() };
            intake::refuse(command, error);
            return;
        }
        if let Command::View { .. } = command {
            // No rank of a run that has left memory sends batches, so this is not a reason to read it from disk.
            self.apply(command);
        } else if self.runs.shelved.contains_key(id) {
            self.load(command);
        } else {
            if let Some(held) = self.runs.held.get_mut(id) {
                held.asked_at = Instant::now();
            }
            self.apply(command);
        }
    }

    /// Holds a command until its run is read from disk. If too many commands wait, drops the command and with it the
    /// reply.
    fn load(&mut self, command: Command) {
        let id = command.run().clone();
        if self.waiting_for_disk >= budget::WAITING_FOR_DISK {
            return;
        }
        if let Some(shelved) = self.runs.shelved.get_mut(&id) {
            self.waiting_for_disk += 1;
            shelved.waiting.push(command);
            if !std::mem::replace(&mut shelved.is_loading, true) {
                self.lines.load.push_back(id);
            }
        }
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Ingest(arrived) => self.check(*arrived),
            Command::Apply { batch, received, room: _until_applied, waiting } => {
                let applied = self.ingest(*batch, received);
                waiting.into_iter().for_each(|waiting| waiting.answer(applied.clone()));
            }
            Command::Lost { run, lost } => self.change(&run, |run| run.lose(lost)),
            Command::View { run } => {
                let now = self.clock.now();
                self.held_mut(&run).into_iter().for_each(|held| held.pace.view(now));
            }
            Command::AskForRecording { run, recording, rank, millis, reply } => {
                // A reply may fail because its client has disconnected.
                let _gone = reply.send(self.ask_for_recording(&run, recording, rank, millis));
            }
            Command::AskForTrace { run, ranks, request } => {
                self.held_mut(&run).into_iter().for_each(|held| held.run.ask_for_trace(&ranks, request));
            }
            Command::Traced { run, compared } => self.change(&run, |run| run.set_traced(*compared)),
            Command::Query { run, query } => self.answer(run, query),
        }
    }

    fn held_mut(&mut self, id: &RunId) -> Option<&mut Held> {
        self.runs.held.get_mut(id)
    }

    /// Changes a run in a way that its report shows.
    fn change(&mut self, id: &RunId, change: impl FnOnce(&mut Run)) {
        if let Some(held) = self.held_mut(id) {
            change(&mut held.run);
            held.changed();
        }
    }

    /// Asks ranks for a short recording. Returns the request, or `None` if there is no such run or rank.
    fn ask_for_recording(
        &mut self,
        id: &RunId,
        recording: Recording,
        rank: Option<Rank>,
        millis: u16,
    ) -> Option<RecordingRequest> {
        let request = RecordingRequest::new(self.clock.now(), millis);
        let run = &mut self.held_mut(id)?.run;
        let is_asked = match recording {
            Recording::Burst => run.ask_for_burst(rank, request),
            Recording::Stacks => run.ask_for_stacks(rank, request),
        };
        is_asked.then_some(request)
    }
}
