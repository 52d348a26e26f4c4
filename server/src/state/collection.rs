//! All runs of a server: those in memory, those on disk only, and those that are set aside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wire::clock::ServerNanos;
use wire::ids::{RunId, Step};
use wire::views::{RankClock, RankLedger, Report, RunState, RunSummary};

use super::began::Began;
use super::budget;
use super::hub::Command;
use super::run::Run;
use super::snapshot::RunSnapshot;

/// A run in memory, and what readers were last shown of it.
pub(super) struct Held {
    pub(super) run: Run,
    pub(super) shown: Option<Arc<RunSnapshot>>,
    pub(super) began: Began,
    /// The newest report.
    pub(super) report: Option<Arc<Report>>,
    pub(super) reported_at: Option<ServerNanos>,
    pub(super) report_took_nanos: i64,
    /// A report is being made.
    pub(super) is_reporting: bool,
    /// It is in the line of runs that have steps to analyse.
    pub(super) is_queued: bool,
    /// Readers have not been shown the newest of it.
    pub(super) dirty: bool,
    /// The newest report does not cover the newest of it.
    pub(super) is_stale: bool,
    /// When somebody last asked for it, or sent it something.
    pub(super) asked_at: Instant,
    /// Who waits for its first report.
    pub(super) openers: Vec<oneshot::Sender<Option<Arc<RunSnapshot>>>>,
    /// Reports that wait until all closed steps are analysed.
    pub(super) until_settled: Vec<Command>,
    /// Example steps that were looked for on disk, the newest last, and when that was.
    pub(super) examples: Examples,
}

/// Which example steps were looked for on disk.
#[derive(Default)]
pub(super) struct Examples {
    sought: VecDeque<Step>,
    sought_at: Option<Instant>,
}

impl Examples {
    /// True when `step` is to be looked for now: at most one every `every`, and none again while it is remembered.
    pub(super) fn is_due(&mut self, step: Step, every: Duration) -> bool {
        let is_early = self.sought_at.is_some_and(|at| at.elapsed() < every);
        if is_early || self.sought.contains(&step) {
            return false;
        }
        if self.sought.len() >= MOST_EXAMPLES {
            self.sought.pop_front();
        }
        self.sought.push_back(step);
        self.sought_at = Some(Instant::now());
        true
    }
}

/// Example steps that are remembered: a run has some verdicts.
const MOST_EXAMPLES: usize = 32;

impl Held {
    pub(super) fn new(run: Run) -> Self {
        Self {
            run,
            shown: None,
            began: Began::default(),
            report: None,
            reported_at: None,
            report_took_nanos: 0,
            is_reporting: false,
            is_queued: false,
            dirty: true,
            is_stale: true,
            asked_at: Instant::now(),
            openers: Vec::new(),
            until_settled: Vec::new(),
            examples: Examples::default(),
        }
    }

    /// About how many bytes it takes.
    fn bytes(&self) -> usize {
        let by_rank = size_of::<RankLedger>() + size_of::<RankClock>();
        self.run.bytes() + self.report.as_ref().map_or(0, |report| report.clocks.len() * by_rank)
    }

    /// True when the run is over and the last word on it is shown: it can leave memory.
    pub(super) fn is_done(&self, now: ServerNanos) -> bool {
        self.run.is_over(now)
            && self.run.is_settled()
            && !self.is_reporting
            && !self.dirty
            && !self.is_stale
            && self.shown.as_ref().is_some_and(|shown| shown.summary.state == self.run.state(now))
    }
}

/// A larger run that has left memory is no baseline until somebody asks for it: its ledger has a line a rank, of some 80
/// bytes, and there may be 10,000 runs.
const BASELINE_RANKS: u32 = 256;

/// A run that has left memory. Its files have all of it.
pub struct Shelved {
    pub(super) summary: RunSummary,
    baseline: Option<Arc<Report>>,
    /// What is asked of it, until it is read.
    pub(super) waiting: Vec<Command>,
    pub(super) is_loading: bool,
}

impl Shelved {
    /// Of a run with this report.
    pub(super) fn new(summary: RunSummary, report: &Report) -> Self {
        let may_be_baseline = summary.state == RunState::Completed
            && summary.ranks_expected <= BASELINE_RANKS
            && summary.throughput.is_some()
            && summary.batch.is_some();
        let baseline = may_be_baseline.then(|| Arc::new(as_baseline(report)));
        Self { summary, baseline, waiting: Vec::new(), is_loading: false }
    }

    pub(super) fn snapshot(&self) -> Arc<RunSnapshot> {
        let (summary, baseline) = (self.summary.clone(), self.baseline.clone());
        Arc::new(RunSnapshot { summary, report: None, baseline, steps: Arc::default() })
    }
}

/// What a baseline is asked for: throughput, and what steps cost. The rest of a report takes some 20 KB; the reasons for
/// missing figures alone take 2 KB.
fn as_baseline(report: &Report) -> Report {
    Report {
        buckets: Vec::new(),
        groups: Vec::new(),
        clocks: Vec::new(),
        verdicts: Vec::new(),
        notes: Vec::new(),
        drops: Vec::new(),
        missing: BTreeMap::new(),
        what_if: None,
        ..report.clone()
    }
}

/// A run that was replayed from disk.
pub enum Replayed {
    /// It is still running.
    Live(Box<Run>),
    /// It stays on disk: only its summary is kept.
    Over(RunId, Box<Shelved>),
}

impl Replayed {
    /// What becomes of a run that was replayed.
    #[must_use]
    pub fn of(run: Run, now: ServerNanos) -> Self {
        if !run.is_over(now) {
            return Self::Live(Box::new(run));
        }
        let report = run.report(usize::MAX, now);
        Self::Over(run.id().clone(), Box::new(Shelved::new(run.summary(&report, now), &report)))
    }
}

/// All runs.
#[derive(Default)]
pub struct Collection {
    pub(super) held: BTreeMap<RunId, Held>,
    pub(super) shelved: BTreeMap<RunId, Shelved>,
    /// Why each of them is set aside.
    pub(super) aside: BTreeMap<RunId, String>,
}

impl Collection {
    /// Adds a run that was replayed from disk.
    pub fn add(&mut self, replayed: Replayed) {
        match replayed {
            Replayed::Over(id, shelved) => drop(self.shelved.insert(id, *shelved)),
            Replayed::Live(run) => {
                self.held.insert(run.id().clone(), Held::new(*run));
                while self.bytes() > budget::ALL_BYTES && self.halve_largest() {}
            }
        }
    }

    /// Runs that are over and on disk only.
    #[must_use]
    pub fn over(&self) -> BTreeSet<RunId> {
        self.shelved.keys().cloned().collect()
    }

    /// Sets a run aside: nothing of it is shown or taken in.
    pub fn set_aside(&mut self, run: RunId, reason: String) {
        self.held.remove(&run);
        self.shelved.remove(&run);
        self.aside.insert(run, reason);
    }

    /// How many runs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len() + self.shelved.len() + self.aside.len()
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes all runs in memory take.
    pub(super) fn bytes(&self) -> usize {
        self.held.values().map(Held::bytes).sum()
    }

    /// Halves what the largest run has in memory; false when nothing came of it.
    pub(super) fn halve_largest(&mut self) -> bool {
        let Some(largest) = self.held.values_mut().max_by_key(|held| held.run.bytes()) else { return false };
        let before = largest.run.bytes();
        largest.run.halve();
        (largest.dirty, largest.is_stale) = (true, true);
        largest.run.bytes() < before
    }
}
