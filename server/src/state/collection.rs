//! All runs of a server: those in memory, those on disk only, and those that are set aside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use analysis::baseline::Baseline;
use tokio::sync::oneshot;
use wire::clock::ServerNanos;
use wire::ids::{RunId, Step};
use wire::views::{RankClock, RankLedger, Report, RunSummary};

use super::budget;
use super::command::Command;
use super::faults::Faults;
use super::pace::Pace;
use super::run::Run;
use super::snapshot::RunSnapshot;

/// A run in memory, with the snapshot that readers last received.
pub(super) struct Held {
    pub(super) run: Run,
    pub(super) shown: Option<Arc<RunSnapshot>>,
    pub(super) faults: Faults,
    /// Whether faults were sought in the steps that were in memory when the run was read.
    pub(super) has_looked_back: bool,
    /// The newest report.
    pub(super) report: Option<Arc<Report>>,
    pub(super) reported_at: Option<ServerNanos>,
    pub(super) report_took_nanos: i64,
    /// Whether a report is in progress.
    pub(super) is_reporting: bool,
    /// Whether the run is in the queue of runs with steps to analyze.
    pub(super) is_queued: bool,
    /// Whether the run has changed since the last snapshot.
    pub(super) dirty: bool,
    /// Whether the run has changed since the newest report.
    pub(super) is_stale: bool,
    /// The time of the last request or batch for this run.
    pub(super) asked_at: Instant,
    pub(super) pace: Pace,
    /// The requests that wait for the run's first report.
    pub(super) openers: Vec<oneshot::Sender<Option<Arc<RunSnapshot>>>>,
    /// Requests for reports that wait until all closed steps are analyzed.
    pub(super) until_settled: Vec<Command>,
    /// The example steps that were looked up on disk.
    pub(super) examples: Examples,
}

/// The example steps that were looked up on disk, newest last, and the time of the last lookup.
#[derive(Default)]
pub(super) struct Examples {
    sought: VecDeque<Step>,
    sought_at: Option<Instant>,
}

impl Examples {
    /// Returns true if `step` should be looked up now, and records the lookup. Lookups are at least `every` apart, and
    /// a remembered step is not looked up again.
    pub(super) fn is_due(&mut self, step: Step, every: Duration) -> bool {
        let is_early = self.sought_at.is_some_and(|at| at.elapsed() < every);
        if is_early || self.sought.contains(&step) {
            return false;
        }
        if self.sought.len() >= MAX_EXAMPLES {
            self.sought.pop_front();
        }
        self.sought.push_back(step);
        self.sought_at = Some(Instant::now());
        true
    }
}

/// The largest number of remembered example steps. A run has only a few verdicts.
const MAX_EXAMPLES: usize = 32;

impl Held {
    pub(super) fn new(run: Run) -> Self {
        Self {
            run,
            shown: None,
            faults: Faults::default(),
            has_looked_back: false,
            report: None,
            reported_at: None,
            report_took_nanos: 0,
            is_reporting: false,
            is_queued: false,
            dirty: true,
            is_stale: true,
            asked_at: Instant::now(),
            pace: Pace::default(),
            openers: Vec::new(),
            until_settled: Vec::new(),
            examples: Examples::default(),
        }
    }

    /// Returns the approximate size of the run, in bytes.
    fn bytes(&self) -> usize {
        let by_rank = size_of::<RankLedger>() + size_of::<RankClock>();
        self.run.bytes() + self.report.as_ref().map_or(0, |report| report.clocks.len() * by_rank)
    }

    /// Returns true if the run has ended and its final state is shown. The run can then leave memory.
    pub(super) fn is_done(&self, now: ServerNanos) -> bool {
        self.run.is_over(now)
            && self.run.is_settled()
            && !self.is_reporting
            && !self.dirty
            && !self.is_stale
            && self.shown.as_ref().is_some_and(|shown| shown.summary.state == self.run.state(now))
    }
}

/// A run that has left memory. Its files contain everything.
pub struct Shelved {
    pub(super) summary: RunSummary,
    baseline: Option<Baseline>,
    /// Commands that wait until the run is read.
    pub(super) waiting: Vec<Command>,
    pub(super) is_loading: bool,
}

impl Shelved {
    /// Returns the entry for a run with this summary and report.
    pub(super) fn new(summary: RunSummary, report: &Report) -> Self {
        Self { summary, baseline: Baseline::from_report(report), waiting: Vec::new(), is_loading: false }
    }

    pub(super) fn snapshot(&self) -> Arc<RunSnapshot> {
        let (summary, baseline) = (self.summary.clone(), self.baseline.clone());
        Arc::new(RunSnapshot {
            summary,
            report: None,
            baseline,
            steps: Arc::default(),
            first_step_of_attempt: 0,
        })
    }
}

/// A run that was replayed from disk.
pub enum Replayed {
    /// A run that may receive more batches.
    Live(Box<Run>),
    /// An ended run. It stays on disk, and only its summary is in memory.
    Over(RunId, Box<Shelved>),
}

impl Replayed {
    /// Classifies a replayed run as live or over.
    #[must_use]
    pub fn new(run: Run, now: ServerNanos) -> Self {
        if !run.is_over(now) {
            return Self::Live(Box::new(run));
        }
        let report = run.report(usize::MAX, now);
        Self::Over(run.id().clone(), Box::new(Shelved::new(run.summary(&report, now), &report)))
    }
}

/// All runs of a server.
#[derive(Default)]
pub struct Collection {
    pub(super) held: BTreeMap<RunId, Held>,
    pub(super) shelved: BTreeMap<RunId, Shelved>,
    /// The runs that are set aside, with the reason for each.
    pub(super) aside: BTreeMap<RunId, String>,
}

impl Collection {
    /// Adds a replayed run.
    pub fn add(&mut self, replayed: Replayed) {
        match replayed {
            Replayed::Over(id, shelved) => drop(self.shelved.insert(id, *shelved)),
            Replayed::Live(run) => {
                self.held.insert(run.id().clone(), Held::new(*run));
                while self.bytes() > budget::ALL_BYTES && self.halve_largest() {}
            }
        }
    }

    /// Returns the runs that have ended and are on disk only.
    #[must_use]
    pub fn over(&self) -> BTreeSet<RunId> {
        self.shelved.keys().cloned().collect()
    }

    /// Sets a run aside: it is no longer shown and accepts no batches.
    pub fn set_aside(&mut self, run: RunId, reason: String) {
        self.held.remove(&run);
        self.shelved.remove(&run);
        self.aside.insert(run, reason);
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len() + self.shelved.len() + self.aside.len()
    }

    /// Returns true if there are no runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the approximate size of all runs in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.held.values().map(Held::bytes).sum()
    }

    /// Drops the older half of what the largest run has in memory. Returns false if this freed nothing.
    pub(super) fn halve_largest(&mut self) -> bool {
        let Some(largest) = self.held.values_mut().max_by_key(|held| held.run.bytes()) else { return false };
        let before = largest.run.bytes();
        largest.run.halve();
        (largest.dirty, largest.is_stale) = (true, true);
        largest.run.bytes() < before
    }
}
