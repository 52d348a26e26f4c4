//! The one task that owns all runs: it takes commands, applies them, and publishes snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use analysis::baseline;
use analysis::step::StepAnalysis;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;
use wire::batch::Batch;
use wire::burst::BurstRequest;
use wire::clock::ServerNanos;
use wire::ids::{Rank, RunId, Step};
use wire::live::Waterfall;
use wire::views::{Report, RunState};

use super::began::Began;
use super::devices::Devices;
use super::run::{ApplyError, RECENT_STEPS, Run};
use super::snapshot::{RunSnapshot, Snapshot};
use crate::clock::ServerClock;
use crate::metrics::Metrics;
use crate::store::replay::Replayed;
use crate::vitals::Vitals;

/// Commands waiting for the hub. Each holds at most one decoded batch of some 6 MB at its very largest; a
/// usual one is 20 KB, so the queue is about 5 MB.
const QUEUE: usize = 256;
/// Snapshots go out at most this often: a fifth of the 250 ms from gradient to pixel.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);
/// Reports are made anew at most this often; they go over hundreds of steps.
const REPORT_EVERY_NANOS: i64 = 250_000_000;
/// And a report takes at most one part in so many of the time: one over 1,024 ranks takes some 0.1 s.
const REPORT_SHARE: i64 = 10;
/// And of a live run at least this often, though nothing came.
const REPORT_AT_LEAST_EVERY_NANOS: i64 = 1_000_000_000;
/// Runs a server holds; the page lists them all.
const MOST_RUNS: usize = 10_000;
/// Steps in a snapshot: how far a live reader may fall behind. Older ones are asked for.
const LIVE_STEPS: usize = 2_000;

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
    },
    /// May this batch come in at all? Asked before it is made durable.
    Check {
        /// The batch.
        batch: Box<Batch>,
        /// The batch back, with the answer.
        reply: oneshot::Sender<Checked>,
    },
    /// The waterfall of one step (`None`: the newest complete one).
    Waterfall {
        /// Of which run.
        run: RunId,
        /// Of which step.
        step: Option<Step>,
        /// `None` when there is no such run or step in memory.
        reply: oneshot::Sender<Option<Waterfall>>,
    },
    /// The waterfalls of a range of kept steps, for exports.
    Waterfalls {
        /// Of which run.
        run: RunId,
        /// From which step.
        first: Step,
        /// To which step, inclusive.
        last: Step,
        /// Empty when nothing of it is in memory.
        reply: oneshot::Sender<Vec<Waterfall>>,
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
        reply: oneshot::Sender<Option<Report>>,
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
    /// The report over the newest steps.
    Report {
        /// Of which run.
        run: RunId,
        /// How many of them; `usize::MAX` for all kept ones.
        newest: usize,
        /// `None` when there is no such run.
        reply: oneshot::Sender<Option<Report>>,
    },
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

/// The hub has stopped: the server is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is shutting down")]
pub struct Stopped;

impl Hub {
    /// Starts the task with the runs that were replayed from disk.
    #[must_use]
    pub fn start(replayed: Replayed, clock: ServerClock, metrics: Metrics, vitals: &Vitals) -> Self {
        let (commands, queue) = mpsc::channel(QUEUE);
        let (publisher, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        let runs = replayed.runs.into_iter().map(|(id, run)| (id, Held::new(run))).collect();
        let (aside, since) = (replayed.aside, clock.now());
        let task = Task { runs, aside, since, clock, metrics, publisher };
        vitals.spawn_task("hub", task.run(queue));
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

/// A run, and what readers were last shown of it.
struct Held {
    run: Run,
    began: Began,
    shown: Option<Arc<RunSnapshot>>,
    reported_at: Option<ServerNanos>,
    report_took_nanos: i64,
    dirty: bool,
}

impl Held {
    fn new(run: Run) -> Self {
        Self {
            run,
            began: Began::default(),
            shown: None,
            reported_at: None,
            report_took_nanos: 0,
            dirty: true,
        }
    }

    /// Time alone may change a live run: a rank falls silent, a hang grows older.
    fn look_at_the_clock(&mut self, now: ServerNanos) {
        let aged = self.reported_at.is_none_or(|at| now - at >= REPORT_AT_LEAST_EVERY_NANOS);
        let state = self.shown.as_ref().map(|shown| shown.summary.state);
        self.dirty |= state != Some(self.run.state(now)) || (aged && !self.run.is_over(now));
    }

    /// Steps are always the newest; the report is made anew when it is due or the run's state changed.
    fn snapshot(&mut self, others: &Snapshot, now: ServerNanos) -> Arc<RunSnapshot> {
        self.dirty = false;
        let every = REPORT_EVERY_NANOS.max(self.report_took_nanos * REPORT_SHARE);
        let due = self.reported_at.is_none_or(|at| now - at >= every);
        let state = self.run.state(now);
        let report = match &self.shown {
            Some(shown) if !due && shown.summary.state == state => shown.report.clone(),
            _ => {
                self.reported_at = Some(now);
                let most = if self.run.is_over(now) { usize::MAX } else { RECENT_STEPS };
                let began = Instant::now();
                let mut report = measured(self.run.report(most, now), others);
                self.began.date(&mut report);
                let report = Arc::new(report);
                if !self.run.is_over(now) {
                    self.run.want_evidence(&report, now);
                }
                self.report_took_nanos =
                    i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX / REPORT_SHARE);
                report
            }
        };
        let snapshot = Arc::new(RunSnapshot {
            summary: self.run.summary(&report, now),
            report,
            steps: Arc::new(self.run.newest_steps(LIVE_STEPS)),
        });
        self.shown = Some(snapshot.clone());
        snapshot
    }
}

/// A report with its measured scaling efficiency, which other runs decide.
fn measured(mut report: Report, others: &Snapshot) -> Report {
    let summaries = others.runs.values().map(|run| &run.summary);
    baseline::measure(&mut report, summaries, |run| others.runs.get(run).map(|run| run.report.clone()));
    report
}

struct Task {
    runs: BTreeMap<RunId, Held>,
    /// Runs that cannot be read from disk, and why.
    aside: BTreeMap<RunId, String>,
    /// When it began to take batches.
    since: ServerNanos,
    clock: ServerClock,
    metrics: Metrics,
    publisher: watch::Sender<Arc<Snapshot>>,
}

impl Task {
    async fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        let mut publish = tokio::time::interval(PUBLISH_EVERY);
        publish.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = queue.recv() => match command {
                    Some(command) => self.apply(command),
                    None => return,
                },
                _ = publish.tick() => self.publish(),
            }
        }
    }

    fn apply(&mut self, command: Command) {
        let run = |id: &RunId| self.runs.get(id).map(|held| &held.run);
        // A reply that nobody waits for any more belongs to a client that went away.
        match command {
            Command::Apply { batch, received, reply } => {
                let taken = self.take_in(*batch, received);
                if let Some(reply) = reply {
                    let _gone = reply.send(taken);
                }
            }
            Command::Check { batch, reply } => {
                let _gone = reply.send(self.check(batch));
            }
            Command::Waterfall { run: id, step, reply } => {
                let _gone = reply.send(run(&id).and_then(|run| run.waterfall(step)));
            }
            Command::Waterfalls { run: id, first, last, reply } => {
                let _gone = reply.send(run(&id).map_or_else(Vec::new, |run| run.waterfalls(first, last)));
            }
            Command::Steps { run: id, first, last, reply } => {
                let _gone = reply.send(run(&id).map_or_else(Vec::new, |run| run.steps_between(first, last)));
            }
            Command::Devices { run: id, reply } => {
                let now = self.clock.now();
                let _gone = reply.send(run(&id).map(|run| Devices::of(run, now)).unwrap_or_default());
            }
            Command::AskForBurst { run: id, rank, millis, reply } => {
                let request = BurstRequest::at(self.clock.now(), millis);
                let held = self.runs.get_mut(&id);
                let is_asked = held.is_some_and(|held| held.run.ask_for_burst(rank, request));
                let _gone = reply.send(is_asked.then_some(request));
            }
            Command::ReportAt { run: id, last, reply } => {
                let now = self.clock.now();
                let report = run(&id).map(|run| run.report_at(last, RECENT_STEPS, now));
                let _gone = reply.send(report.map(|report| measured(report, &self.publisher.borrow())));
            }
            Command::Report { run: id, newest, reply } => {
                let now = self.clock.now();
                let report = run(&id).map(|run| run.report(newest, now));
                let _gone = reply.send(report.map(|report| measured(report, &self.publisher.borrow())));
            }
        }
    }

    fn check(&mut self, batch: Box<Batch>) -> Checked {
        let (now, count) = (self.clock.now(), self.runs.len());
        let held = self.runs.get_mut(&batch.run);
        let is_first = held.is_none();
        let asked = held.as_ref().and_then(|held| held.run.burst_asked(batch.rank, now));
        let verdict = match (held, self.aside.get(&batch.run)) {
            (Some(held), _) => {
                let verdict = held.run.admit(&batch, now, self.since);
                held.dirty |= verdict.as_ref().is_err_and(ApplyError::is_refusal);
                verdict
            }
            (None, Some(reason)) => Err(ApplyError::Aside { run: batch.run.clone(), reason: reason.clone() }),
            (None, None) if count >= MOST_RUNS => Err(ApplyError::TooManyRuns(MOST_RUNS)),
            (None, None) => Ok(()),
        };
        Checked { batch, verdict, is_first, asked }
    }

    fn take_in(&mut self, batch: Batch, received: ServerNanos) -> Result<(), ApplyError> {
        let id = batch.run.clone();
        let held = self
            .runs
            .entry(id.clone())
            .or_insert_with(|| Held::new(Run::new(id.clone(), batch.world_size, received)));
        let closed = held.run.apply(batch, received)?;
        self.metrics.observe_steps(&held.run, &closed);
        held.dirty = true;
        Ok(())
    }

    fn publish(&mut self) {
        let now = self.clock.now();
        for held in self.runs.values_mut() {
            let closed = held.run.tick(now);
            self.metrics.observe_steps(&held.run, &closed);
            held.dirty |= !closed.is_empty();
            held.look_at_the_clock(now);
        }
        if !self.runs.values().any(|held| held.dirty) {
            return;
        }
        let mut snapshot = Snapshot::clone(&self.publisher.borrow());
        let mut dirty: Vec<(&RunId, &mut Held)> =
            self.runs.iter_mut().filter(|(_, held)| held.dirty).collect();
        // A baseline has fewer ranks than the runs that are measured against it.
        dirty.sort_by_key(|(_, held)| held.run.world_size());
        let mut completed = Vec::new();
        for (id, held) in dirty {
            let shown = held.snapshot(&snapshot, now);
            self.metrics.observe_run(&held.run, &shown, now);
            let before = snapshot.runs.insert(id.clone(), shown.clone());
            let is_completed = |run: &RunSnapshot| run.summary.state == RunState::Completed;
            if is_completed(&shown) && !before.is_some_and(|before| is_completed(&before)) {
                completed.push((shown.summary.name.clone(), shown.summary.ranks_expected));
            }
        }
        self.publisher.send_replace(Arc::new(snapshot));
        for (name, ranks) in completed {
            self.measure_again(&name, ranks);
        }
    }

    /// A run of `name` on `ranks` ranks has completed: it may be the baseline of those on more ranks.
    fn measure_again(&mut self, name: &str, ranks: u32) {
        let larger = |held: &&mut Held| held.run.name() == name && held.run.world_size() > ranks;
        for held in self.runs.values_mut().filter(larger) {
            held.dirty = true;
            held.reported_at = None;
        }
    }
}
