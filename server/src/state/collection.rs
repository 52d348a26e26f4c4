//! All runs of a server: those in memory, those on disk only, and those that are set aside.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use analysis::baseline::Baseline;
use analysis::verdict::NOTABLE_SHARE;
use tokio::sync::oneshot;
use wire::clock::ServerNanos;
use wire::ids::{RunId, Step};
use wire::views::{Report, RunSummary};

use super::budget::{self, RECENT_STEPS};
use super::command::Command;
use super::pace::Pace;
use super::query::RunQuery;
use super::run::Run;
use super::run::faults::Faults;
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
    /// The approximate size of the newest report, in bytes.
    pub(super) report_bytes: usize,
    /// What is listed of a run that was read at the start of the server, until its first report.
    restored: Option<Box<Shelved>>,
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
    pub(super) until_settled: Vec<RunQuery>,
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
    /// Returns true if `step` should be looked up now, and records the lookup. Lookups are at least `pause` apart, and
    /// a remembered step is not looked up again.
    pub(super) fn is_due(&mut self, step: Step, pause: Duration) -> bool {
        let is_early = self.sought_at.is_some_and(|at| at.elapsed() < pause);
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
            report_bytes: 0,
            restored: None,
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
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.run.bytes() + self.report_bytes
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

/// A run that was restored from disk.
pub enum Restored {
    /// A run that may receive more batches, and what is listed of it.
    Live(Box<Run>, Box<Shelved>),
    /// An ended run. It stays on disk, and only its summary is in memory.
    Over(RunId, Box<Shelved>),
}

impl Restored {
    /// Classifies a restored run as live or over.
    #[must_use]
    pub fn new(run: Run, now: ServerNanos) -> Self {
        let is_over = run.is_over(now);
        let report = run.report(if is_over { usize::MAX } else { RECENT_STEPS }, now);
        let listed = Box::new(Shelved::new(run.summary(&report, now), &report));
        if is_over { Self::Over(run.id().clone(), listed) } else { Self::Live(Box::new(run), listed) }
    }
}

/// All runs of a server.
pub struct Collection {
    /// The largest size of all runs in memory, in bytes.
    most_bytes: usize,
    /// The share of the time from which an effect on a run is a verdict.
    pub(super) notable_share: f64,
    pub(super) held: BTreeMap<RunId, Held>,
    pub(super) shelved: BTreeMap<RunId, Shelved>,
    /// The runs that are set aside, with the reason for each.
    pub(super) aside: BTreeMap<RunId, String>,
}

impl Default for Collection {
    fn default() -> Self {
        Self::with_limit(budget::ALL_BYTES)
    }
}

impl Collection {
    /// Creates a collection whose runs take at most `most_bytes` in memory together.
    #[must_use]
    pub fn with_limit(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            notable_share: NOTABLE_SHARE,
            held: BTreeMap::new(),
            shelved: BTreeMap::new(),
            aside: BTreeMap::new(),
        }
    }

    /// Sets the share of the time from which an effect on a run that arrives, or is read from disk again, is a verdict.
    #[must_use]
    pub fn judged_from(self, notable_share: f64) -> Self {
        Self { notable_share, ..self }
    }

    /// Returns the largest size of all runs in memory, in bytes.
    pub(super) fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// Returns true if the runs in memory take more than they may.
    pub(super) fn is_over(&self) -> bool {
        self.bytes() > self.most_bytes
    }

    /// Adds a restored run. If all runs together do not fit in memory, it stays on disk like an ended one, and is read
    /// when a batch of it arrives and there is room.
    pub fn add(&mut self, restored: Restored) {
        match restored {
            Restored::Over(id, shelved) => drop(self.shelved.insert(id, *shelved)),
            Restored::Live(run, listed) => {
                let id = run.id().clone();
                self.held.insert(id.clone(), Held { restored: Some(listed), ..Held::new(*run) });
                if !self.fit()
                    && let Some(listed) = self.held.remove(&id).and_then(|held| held.restored)
                {
                    self.shelved.insert(id, *listed);
                }
            }
        }
    }

    /// Returns what is known of each restored run before the first report on it.
    pub(super) fn listed(&mut self) -> BTreeMap<RunId, Arc<RunSnapshot>> {
        let held = self.held.iter_mut().filter_map(|(id, held)| Some((id, held.restored.take()?.snapshot())));
        let held: Vec<_> = held.map(|(id, snapshot)| (id.clone(), snapshot)).collect();
        let shelved = self.shelved.iter().map(|(id, shelved)| (id.clone(), shelved.snapshot()));
        shelved.chain(held).collect()
    }

    /// Returns the runs that have ended and are on disk only.
    #[must_use]
    pub fn ended_runs(&self) -> BTreeSet<RunId> {
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
    fn bytes(&self) -> usize {
        self.held.values().map(Held::bytes).sum()
    }

    /// Drops the older halves of what runs have in memory, of the largest run first, until all together take no more than they
    /// may. Returns false if they take more and none can drop anything.
    pub(super) fn fit(&mut self) -> bool {
        let mut bytes = self.bytes();
        while bytes > self.most_bytes {
            let freed = self.halve_largest();
            if freed == 0 {
                return false;
            }
            bytes = bytes.saturating_sub(freed);
        }
        true
    }

    /// Drops the older half of what the largest run has in memory of those that can drop anything. Returns the size of
    /// what it dropped, in bytes.
    fn halve_largest(&mut self) -> usize {
        let mut largest_first: Vec<(usize, &mut Held)> =
            self.held.values_mut().map(|held| (held.run.bytes(), held)).collect();
        largest_first.sort_unstable_by_key(|(bytes, _)| Reverse(*bytes));
        let halved = largest_first.into_iter().find_map(|(bytes, held)| {
            held.run.halve();
            let freed = bytes.saturating_sub(held.run.bytes());
            if freed > 0 {
                (held.dirty, held.is_stale) = (true, true);
            }
            (freed > 0).then_some(freed)
        });
        halved.unwrap_or(0)
    }
}
