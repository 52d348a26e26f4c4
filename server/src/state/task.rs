//! The task of the [hub](super::hub). It owns all runs, applies commands and publishes snapshots.
//!
//! Longer work happens on other threads: analyzing a step, making a report, and reading a run or a step from disk
//! ([`recall`]). A run has at most one of each in progress, and runs take turns, so that none delays the others.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use wire::batch::Batch;
use wire::clock::ServerNanos;
use wire::ids::RunId;
use wire::request::{RecordingRequest, Requests};
use wire::views::{Report, RunState};

use super::budget::{self, RECENT_STEPS};
use super::collection::{Collection, Held, Shelved};
use super::command::{Checked, Command};
use super::devices::Devices;
use super::refusal::ApplyError;
use super::replay;
use super::run::Run;
use super::snapshot::{RunSnapshot, Snapshot};
use super::steps::Done;
use crate::clock::ServerClock;
use crate::metrics::Metrics;
use crate::store::directory::Layout;
use recall::Recall;

mod recall;
mod showing;

/// The interval between snapshots, and the shortest time between two that have new steps: a fifth of the 250 ms from
/// gradient to pixel.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);
/// The divisor for the share of the task's time that publishing may take. With 10,000 live runs, publishing takes about
/// 40 ms.
const PUBLISH_SHARE: u32 = 10;
/// The divisor for the share of time that reports of a run may take. A report over 1,024 ranks takes about 0.1 s.
const REPORT_SHARE: i64 = 10;
/// The longest time between reports of a live run, in nanoseconds, even if no batch arrived. With many live runs it
/// grows with their number ([`REPORT_ONE_EVERY_NANOS`]).
const REPORT_AT_LEAST_EVERY_NANOS: i64 = 1_000_000_000;
/// The longest time between reports of a live run, in nanoseconds, per run in memory. It applies above 100 runs, so
/// that thousands of silent runs leave the processor to active ones.
const REPORT_ONE_EVERY_NANOS: i64 = 10_000_000;
/// The time without a look at the clock after which the process was stopped (SIGSTOP, a paused machine), in nanoseconds. Publishing for
/// 10,000 live runs takes about 40 ms.
const STOPPED_NANOS: i64 = 3_000_000_000;
/// The number of steps in a snapshot, which is how far a live reader may fall behind. Older steps are sent on request.
const LIVE_STEPS: usize = 2_000;
/// The largest number of reports made at a time.
const MAX_REPORTING: usize = 1;
/// The largest number of runs read from disk at a time. Each takes up to the memory of a run.
const MAX_LOADING: usize = 1;
/// The largest number of steps read back from disk at a time. Each takes up to [`budget::RECALL_BYTES`].
const MAX_RECALLING: usize = 1;

/// The result of work on another thread. An error is the message of a panic or the reason of a failure.
enum Outcome {
    Analyzed { run: RunId, done: Result<Done, String> },
    Reported { run: RunId, made: Result<Box<Made>, String> },
    Loaded { run: RunId, loaded: Result<Option<Box<Run>>, String> },
    Recalled { asked: Recall, read: Result<recall::Read, String> },
}

/// A new report.
struct Made {
    report: Report,
    /// The approximate size of the report, in bytes.
    bytes: usize,
    took: Duration,
    /// The reports over earlier steps, oldest first. They are made once.
    earlier: Vec<Report>,
}

/// The amount of work in progress on other threads.
#[derive(Default)]
struct UnderWay {
    analyzing: usize,
    reporting: usize,
    loading: usize,
    recalling: usize,
}

/// The queues of runs, and of steps of runs, that wait for a thread.
#[derive(Default)]
struct Lines {
    analyze: VecDeque<RunId>,
    report: VecDeque<RunId>,
    load: VecDeque<RunId>,
    recall: VecDeque<Recall>,
}

pub(super) struct Task {
    runs: Collection,
    clock: ServerClock,
    metrics: Arc<Metrics>,
    publisher: watch::Sender<Arc<Snapshot>>,
    layout: Option<Layout>,
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
    since: ServerNanos,
    /// The time of the last look at the clock.
    looked: ServerNanos,
}

impl Task {
    pub(super) fn new(
        runs: Collection,
        clock: ServerClock,
        metrics: Arc<Metrics>,
        publisher: watch::Sender<Arc<Snapshot>>,
        layout: Option<Layout>,
    ) -> Self {
        // One core is left for requests.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut task = Self {
            runs,
            clock,
            metrics,
            publisher,
            layout,
            threads: JoinSet::new(),
            most_analyzing: (cores - 1).max(1),
            under_way: UnderWay::default(),
            lines: Lines::default(),
            waiting_for_disk: 0,
            is_full: false,
            has_new_step: false,
            since: clock.now(),
            looked: clock.now(),
        };
        // Before the first request, so that the list of runs is complete from the first answer on.
        task.show_replayed();
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
    fn show_replayed(&mut self) {
        let snapshot = Snapshot { runs: self.runs.listed(), aside: self.runs.aside.clone() };
        self.publisher.send_replace(Arc::new(snapshot));
        self.metrics.server.set_aside.set(self.runs.aside.len() as i64);
    }

    /// Applies a command once its run is in memory.
    fn take(&mut self, command: Command) {
        let id = command.run();
        if let Some(reason) = self.runs.aside.get(id) {
            let error = ApplyError::Aside { run: id.clone(), reason: reason.clone() };
            refuse(command, error);
            return;
        }
        // To read it would take memory that there is not.
        if self.is_full && matches!(command, Command::Check { .. }) && self.runs.shelved.contains_key(id) {
            let error = ApplyError::NoRoom { run: id.clone(), most: self.runs.most_bytes() };
            refuse(command, error);
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
        let now = self.clock.now();
        let held = self.runs.held.get(command.run());
        let run = held.map(|held| &held.run);
        // A reply may fail because its client has disconnected.
        match command {
            Command::Apply { batch, received, reply, room: _until_applied } => {
                let ingested = self.ingest(*batch, received);
                if let Some(reply) = reply {
                    let _gone = reply.send(ingested);
                }
            }
            Command::Check { batch, reply } => {
                let _gone = reply.send(self.check(batch));
            }
            Command::View { run: id } => {
                self.runs.held.get_mut(&id).into_iter().for_each(|held| held.pace.view(now));
            }
            Command::Lost { run: id, lost } => {
                if let Some(held) = self.runs.held.get_mut(&id) {
                    held.run.lose(lost);
                    held.changed();
                }
            }
            Command::Placed { run: id, step, reply } => self.place(id, step, reply),
            Command::PlacedBetween { first, last, most, reply, .. } => {
                let folder = run.and_then(|run| Some(self.layout.as_ref()?.folder(run.id())));
                let between = run.map(|run| run.between(first, last, most, folder));
                let _gone = reply.send(between.unwrap_or_default());
            }
            Command::Steps { first, last, reply, .. } => {
                let _gone = reply.send(run.map_or_else(Vec::new, |run| run.steps_between(first, last)));
            }
            Command::Devices { reply, .. } => {
                let _gone = reply.send(run.map(|run| Devices::new(run.devices(), now)).unwrap_or_default());
            }
            Command::Usage { usage, reply, .. } => {
                let _gone = reply.send(run.map(|run| run.usage(usage)).unwrap_or_default());
            }
            Command::RecentUsage { reply, .. } => {
                let _gone = reply.send(run.map(Run::recent_usage).unwrap_or_default());
            }
            Command::AskForBurst { run: id, rank, millis, reply } => {
                let request = RecordingRequest::at(now, millis);
                let held = self.runs.held.get_mut(&id);
                let is_asked = held.is_some_and(|held| held.run.ask_for_burst(rank, request));
                let _gone = reply.send(is_asked.then_some(request));
            }
            Command::AskForStacks { run: id, rank, millis, reply } => {
                let request = RecordingRequest::at(now, millis);
                let held = self.runs.held.get_mut(&id);
                let is_asked = held.is_some_and(|held| held.run.ask_for_stacks(rank, request));
                let _gone = reply.send(is_asked.then_some(request));
            }
            Command::AskForTrace { run: id, ranks, request } => {
                let held = self.runs.held.get_mut(&id);
                held.into_iter().for_each(|held| held.run.ask_for_trace(&ranks, request));
            }
            Command::Traced { run: id, compared } => {
                if let Some(held) = self.runs.held.get_mut(&id) {
                    held.run.set_traced(*compared);
                    held.changed();
                }
            }
            Command::Stacks { reply, .. } => {
                let stacks =
                    run.map(|run| run.stacks().map(|(rank, stacks)| (rank, stacks.clone())).collect());
                let _gone = reply.send(stacks.unwrap_or_default());
            }
            Command::TraceSummaries { reply, .. } => {
                let _gone = reply.send(run.map(Run::trace_summaries).unwrap_or_default());
            }
            Command::Layouts { reply, .. } => {
                let _gone = reply.send(run.map(Run::layouts).unwrap_or_default());
            }
            Command::ReportBetween { first, last, reply, .. } => {
                let _gone =
                    reply.send(run.map(|run| run.report_work_between(first, last, RECENT_STEPS, now)));
            }
            Command::Open { run: id, reply } => match self.runs.held.get_mut(&id) {
                Some(held) => match held.shown.clone().filter(|shown| shown.report.is_some()) {
                    Some(shown) => drop(reply.send(Some(shown))),
                    None => held.openers.push(reply),
                },
                None => drop(reply.send(None)),
            },
            Command::Report { run: id, newest, reply } => match self.runs.held.get_mut(&id) {
                Some(held) if !held.run.is_settled() => {
                    held.until_settled.push(Command::Report { run: id, newest, reply });
                }
                held => {
                    let _gone = reply.send(held.map(|held| held.run.report_work(newest, now)));
                }
            },
        }
    }

    fn check(&mut self, mut batch: Box<Batch>) -> Checked {
        let (now, count) = (self.clock.now(), self.runs.len());
        let most = self.runs.most_bytes();
        let share = most / self.runs.held.len().max(1);
        let held = self.runs.held.get_mut(&batch.run);
        let is_first = held.is_none();
        let asked = held
            .as_ref()
            .map(|held| held.pace.set(held.run.asked(batch.rank, now), held.run.first_seen(), now));
        let mut is_renumbered = false;
        let verdict = match held {
            Some(held) if self.is_full && held.bytes() > share => {
                Err(ApplyError::NoRoom { run: batch.run.clone(), most })
            }
            Some(held) => {
                let verdict = held.run.admit(&batch, now, self.since);
                if verdict.is_ok() {
                    is_renumbered = held.run.renumber(&mut batch);
                }
                if verdict.as_ref().is_err_and(ApplyError::is_refusal) {
                    held.changed();
                }
                verdict
            }
            None if count >= budget::RUNS => Err(ApplyError::TooManyRuns(budget::RUNS)),
            None if self.is_full => Err(ApplyError::NoRoom { run: batch.run.clone(), most }),
            None if !batch.run.may_be_new() => Err(ApplyError::LikeAnOption { run: batch.run.clone() }),
            None => Run::check_alone(&batch),
        };
        Checked { batch, verdict, is_first, asked: asked.unwrap_or_default(), is_renumbered }
    }

    fn ingest(&mut self, batch: Batch, received: ServerNanos) -> Result<(), ApplyError> {
        let (id, notable_share) = (batch.run.clone(), self.runs.notable_share);
        let held = self.runs.held.entry(id.clone()).or_insert_with(|| {
            Held::new(Run::new(id.clone(), batch.world_size, received).judged_from(notable_share))
        });
        held.run.ingest(batch, received)?;
        held.changed();
        self.queue(&id);
        Ok(())
    }

    /// Adds a run with steps to analyze to the queue.
    fn queue(&mut self, id: &RunId) {
        if let Some(held) = self.runs.held.get_mut(id)
            && held.run.has_work()
            && !std::mem::replace(&mut held.is_queued, true)
        {
            self.lines.analyze.push_back(id.clone());
        }
    }

    /// Starts as much work as may be in progress.
    fn start_work(&mut self) {
        while self.under_way.analyzing < self.most_analyzing
            && let Some(id) = self.lines.analyze.pop_front()
        {
            self.start_analysis(id);
        }
        while self.under_way.reporting < MAX_REPORTING
            && let Some(id) = self.lines.report.pop_front()
        {
            self.start_report(id);
        }
        while self.under_way.loading < MAX_LOADING
            && let Some(id) = self.lines.load.pop_front()
        {
            self.start_load(id);
        }
        while self.under_way.recalling < MAX_RECALLING
            && let Some(asked) = self.lines.recall.pop_front()
        {
            self.start_recall(asked);
        }
    }

    fn start_analysis(&mut self, run: RunId) {
        let Some(held) = self.runs.held.get_mut(&run) else { return };
        held.is_queued = false;
        let Some(work) = held.run.next_work() else { return };
        self.under_way.analyzing += 1;
        self.threads.spawn_blocking(move || Outcome::Analyzed { run, done: guarded(|| work.analyze()) });
    }

    fn start_report(&mut self, run: RunId) {
        let now = self.clock.now();
        let Some(held) = self.runs.held.get_mut(&run) else { return };
        held.reported_at = Some(now);
        held.is_stale = false;
        let is_over = held.run.is_over(now);
        let most = if is_over { usize::MAX } else { RECENT_STEPS };
        let work = held.run.report_work(most, now);
        // A run that was read from disk may have had faults before its newest steps. They are sought once all its steps are
        // analyzed.
        let looks_back = !held.has_looked_back && held.run.is_settled();
        held.has_looked_back |= looks_back;
        let all_steps = looks_back.then(|| held.run.report_work(usize::MAX, now));
        let others = self.publisher.borrow().clone();
        self.under_way.reporting += 1;
        self.threads.spawn_blocking(move || {
            let made = guarded(|| {
                let began = Instant::now();
                let report = others.measure(work.report());
                let took = began.elapsed();
                let bytes = report_bytes(&report);
                let earlier = all_steps.map_or_else(Vec::new, |work| work.partial_reports());
                Box::new(Made { report, bytes, took, earlier })
            });
            Outcome::Reported { run, made }
        });
    }

    fn start_load(&mut self, run: RunId) {
        let Some(layout) = self.layout.clone() else { return };
        let notable_share = self.runs.notable_share;
        self.under_way.loading += 1;
        self.threads.spawn_blocking(move || {
            let loaded = guarded(|| replay::run(&layout, &run).map_err(|error| error.to_string()));
            let loaded = loaded
                .and_then(|loaded| loaded)
                .map(|loaded| loaded.map(|run| Box::new(run.judged_from(notable_share))));
            Outcome::Loaded { run, loaded }
        });
    }

    fn settle(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Analyzed { run, done } => {
                self.under_way.analyzing -= 1;
                match done {
                    Ok(done) => self.analyzed(&run, done),
                    Err(panic) => self.set_aside(&run, format!("the analysis of a step fails ({panic})")),
                }
            }
            Outcome::Reported { run, made } => {
                self.under_way.reporting -= 1;
                match made {
                    Ok(made) => self.reported(&run, *made),
                    Err(panic) => self.set_aside(&run, format!("its report fails ({panic})")),
                }
            }
            Outcome::Loaded { run, loaded } => {
                self.under_way.loading -= 1;
                match loaded {
                    Ok(loaded) => self.loaded(&run, loaded),
                    Err(reason) => self.set_aside(&run, reason),
                }
            }
            Outcome::Recalled { asked, read } => {
                self.under_way.recalling -= 1;
                self.recalled(asked, read);
            }
        }
    }

    fn analyzed(&mut self, id: &RunId, done: Done) {
        let now = self.clock.now();
        let Some(held) = self.runs.held.get_mut(id) else { return };
        let step = held.run.finish(done, now);
        self.metrics.observe_steps(id, held.run.world_size(), &[step]);
        held.changed();
        self.has_new_step = true;
        if held.run.is_settled() {
            std::mem::take(&mut held.until_settled).into_iter().for_each(|report| self.apply(report));
        }
        self.queue(id);
    }

    fn reported(&mut self, id: &RunId, made: Made) {
        let Made { mut report, bytes, took, earlier } = made;
        let now = self.clock.now();
        let Some(held) = self.runs.held.get_mut(id) else { return };
        held.is_reporting = false;
        for mut report in earlier {
            held.faults.complete(&mut report);
        }
        held.faults.complete(&mut report);
        held.report_took_nanos = i64::try_from(took.as_nanos()).unwrap_or(i64::MAX / REPORT_SHARE);
        if !held.run.is_over(now) {
            held.run.want_evidence(&report, now);
            held.run.want_stacks(&report, now);
        }
        (held.report, held.report_bytes) = (Some(Arc::new(report)), bytes);
        held.dirty = true;
        self.seek_example(id);
    }

    fn loaded(&mut self, id: &RunId, loaded: Option<Box<Run>>) {
        let Some(shelved) = self.runs.shelved.remove(id) else { return };
        self.waiting_for_disk -= shelved.waiting.len();
        if let Some(run) = loaded {
            self.runs.held.insert(id.clone(), Held::new(*run));
            shelved.waiting.into_iter().for_each(|command| self.take(command));
        }
    }

    /// Sets a run aside, so that a failure on one run does not affect the others.
    fn set_aside(&mut self, id: &RunId, reason: String) {
        tracing::error!(run = %id, %reason, "this run is set aside; other runs are served as before");
        let waiting = self.runs.shelved.get(id).map_or(0, |shelved| shelved.waiting.len());
        self.waiting_for_disk -= waiting;
        self.runs.set_aside(id.clone(), reason);
        self.metrics.server.set_aside.set(self.runs.aside.len() as i64);
        let mut snapshot = Snapshot::clone(&self.publisher.borrow());
        snapshot.runs.remove(id);
        snapshot.aside.clone_from(&self.runs.aside);
        self.publisher.send_replace(Arc::new(snapshot));
    }

    /// If this process was stopped for a while, its runs have not been silent: it did not listen.
    fn notice_a_stop(&mut self, now: ServerNanos) {
        let away = now - self.looked;
        if away > STOPPED_NANOS {
            tracing::warn!(seconds = away / 1_000_000_000, "this server did not run for some time");
            self.since = now;
            self.runs.held.values_mut().for_each(|held| held.run.listen_from(now));
        }
        self.looked = now;
    }

    fn publish(&mut self) {
        let now = self.clock.now();
        self.notice_a_stop(now);
        let of_all = REPORT_ONE_EVERY_NANOS.saturating_mul(self.runs.held.len() as i64);
        let every = REPORT_AT_LEAST_EVERY_NANOS.max(of_all);
        for (id, held) in &mut self.runs.held {
            held.run.tick(now);
            if held.run.has_work() && !std::mem::replace(&mut held.is_queued, true) {
                self.lines.analyze.push_back(id.clone());
            }
            held.look_at_the_clock(now, every);
            if held.is_stale && !held.is_reporting && held.report_is_due(now) {
                held.is_reporting = true;
                self.lines.report.push_back(id.clone());
            }
        }
        let shelved = self.shelve(now);
        if shelved.is_empty() && !self.runs.held.values().any(|held| held.dirty && held.report.is_some()) {
            return;
        }
        let mut snapshot = Snapshot::clone(&self.publisher.borrow());
        let mut completed = Vec::new();
        for (id, held) in self.runs.held.iter_mut().filter(|(_, held)| held.dirty) {
            if let Some(shown) = held.show(now) {
                self.metrics.observe_run(&held.run.values(&shown, now));
                let before = snapshot.runs.insert(id.clone(), shown.clone());
                let is_completed = |run: &RunSnapshot| run.summary.state == RunState::Completed;
                if is_completed(&shown) && !before.is_some_and(|before| is_completed(&before)) {
                    completed.push((shown.summary.name.clone(), shown.summary.ranks_expected));
                }
            }
        }
        snapshot.runs.extend(shelved);
        self.publisher.send_replace(Arc::new(snapshot));
        for (name, ranks) in completed {
            self.measure_again(&name, ranks);
        }
    }

    /// Renews the reports of runs of this name on more ranks, because the completed run may be their baseline.
    fn measure_again(&mut self, name: &str, ranks: u32) {
        let larger = |held: &&mut Held| held.run.name() == name && held.run.world_size() > ranks;
        for held in self.runs.held.values_mut().filter(larger) {
            held.changed();
            held.reported_at = None;
        }
    }

    /// Drops from memory the ended runs that were not requested recently. If all runs together exceed their budget,
    /// drops more ended runs, and then parts of live runs.
    fn shelve(&mut self, now: ServerNanos) -> Vec<(RunId, Arc<RunSnapshot>)> {
        let mut shelved = Vec::new();
        let mut is_full = self.runs.is_over();
        if self.layout.is_some() {
            let done = self.runs.held.iter().filter(|(_, held)| held.is_done(now));
            let mut done: Vec<(Instant, RunId)> =
                done.map(|(id, held)| (held.asked_at, id.clone())).collect();
            done.sort();
            let excess = done.len().saturating_sub(budget::ENDED_RUNS);
            for (at, (asked_at, id)) in done.into_iter().enumerate() {
                if at < excess || is_full || asked_at.elapsed() > budget::KEEP_ENDED {
                    shelved.extend(self.shelve_one(&id));
                    is_full = is_full && self.runs.is_over();
                }
            }
        }
        self.is_full = !self.runs.fit();
        shelved
    }

    fn shelve_one(&mut self, id: &RunId) -> Option<(RunId, Arc<RunSnapshot>)> {
        let held = self.runs.held.remove(id)?;
        let shelved = Shelved::new(held.shown?.summary.clone(), held.report.as_deref()?);
        let snapshot = shelved.snapshot();
        self.runs.shelved.insert(id.clone(), shelved);
        Some((id.clone(), snapshot))
    }
}

/// Answers a batch that is not accepted. Other commands get no answer.
fn refuse(command: Command, error: ApplyError) {
    if let Command::Check { batch, reply } = command {
        let (asked, is_first, is_renumbered) = (Requests::default(), false, false);
        let _gone = reply.send(Checked { batch, verdict: Err(error), is_first, asked, is_renumbered });
    }
}

/// Returns the approximate size of a report, in bytes: that of its JSON, whose numbers and names take about as much as those
/// in memory.
fn report_bytes(report: &Report) -> usize {
    let mut counted = Counted(0);
    // Nothing is written, so nothing fails.
    let _infallible = serde_json::to_writer(&mut counted, report);
    counted.0
}

/// Counts what is written.
struct Counted(usize);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Does work that may panic. An error is the panic's message.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
    })
}
