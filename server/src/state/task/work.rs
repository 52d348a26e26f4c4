//! Work on other threads: what is queued, what is in progress, and what becomes of the results.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::ids::RunId;
use wire::views::Report;

use super::Task;
use super::showing::REPORT_SHARE;
use crate::state::budget::RECENT_STEPS;
use crate::state::collection::Held;
use crate::state::recall::request::{Read, Request};
use crate::state::restore;
use crate::state::run::Run;
use crate::state::snapshot::Snapshot;
use crate::state::steps::placed::Done;

/// The largest number of reports made at a time.
const MAX_REPORTING: usize = 1;
/// The largest number of runs read from disk at a time. Each takes up to the memory of a run.
const MAX_LOADING: usize = 1;
/// The largest number of steps read back from disk at a time. Each takes up to [`RECALL_BYTES`](crate::state::budget::RECALL_BYTES).
const MAX_RECALLING: usize = 1;

/// The result of work on another thread. An error is the message of a panic or the reason of a failure.
pub(super) enum Outcome {
    Analyzed { run: RunId, done: Result<Done, String> },
    Reported { run: RunId, made: Result<Box<Made>, String> },
    Loaded { run: RunId, loaded: Result<Option<Box<Run>>, String> },
    Recalled { asked: Request, read: Result<Read, String> },
}

/// A new report.
pub(super) struct Made {
    report: Report,
    /// The approximate size of the report, in bytes.
    bytes: usize,
    took: Duration,
    /// The reports over earlier steps, oldest first. They are made once.
    earlier: Vec<Report>,
}

/// The amount of work in progress on other threads.
#[derive(Default)]
pub(super) struct UnderWay {
    analyzing: usize,
    reporting: usize,
    loading: usize,
    pub(super) recalling: usize,
}

/// The queues of runs, and of steps of runs, that wait for a thread.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) analyze: VecDeque<RunId>,
    pub(super) report: VecDeque<RunId>,
    pub(super) load: VecDeque<RunId>,
    pub(super) recall: VecDeque<Request>,
}

impl Task {
    /// Adds a run with steps to analyze to the queue.
    pub(super) fn queue(&mut self, id: &RunId) {
        if let Some(held) = self.runs.held.get_mut(id)
            && held.run.has_work()
            && !std::mem::replace(&mut held.is_queued, true)
        {
            self.lines.analyze.push_back(id.clone());
        }
    }

    /// Starts as much work as may be in progress.
    pub(super) fn start_work(&mut self) {
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
            let loaded = guarded(|| restore::run(&layout, &run).map_err(|error| error.to_string()));
            let loaded = loaded
                .and_then(|loaded| loaded)
                .map(|loaded| loaded.map(|run| Box::new(run.judged_from(notable_share))));
            Outcome::Loaded { run, loaded }
        });
    }

    pub(super) fn settle(&mut self, outcome: Outcome) {
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
            let waiting = std::mem::take(&mut held.until_settled);
            waiting.into_iter().for_each(|report| self.answer(id.clone(), report));
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
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
    })
}
