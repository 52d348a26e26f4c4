//! The closed steps of a run, first waiting for analysis, then analyzed, within the budgets.
//!
//! [`Work`] holds all that an analysis needs, so the task that owns the runs hands it to a thread and continues. A run
//! has one step in analysis at a time, so that steps stay in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use analysis::records::{RankStep, StepRecords};
use analysis::replay::ReplayedCollective;
use analysis::step::{CollectiveAnalysis, RankAnalysis, StepAnalysis};
use analysis::{report, step, waterfall};
use timing::clocks::{self, AlignedCollective, ClockFit};
use wire::event::{BucketRecord, Function, Source};
use wire::ids::Step;
use wire::live::Waterfall;

use super::budget;
use super::course::Course;
use super::incoming::gathered::ALLOCATION_BYTES;
use super::incoming::{CLAIMED_RANK_BYTES, Closed, Kept};
use super::queue;
use super::recalled::Recalled;
use crate::store::StepRange;

/// The largest number of collectives of a rank in a step that tighten the clocks.
const TIGHTEN_WITH: usize = 16;

/// The records of a step and the clocks of its ranks.
#[derive(Clone)]
pub struct Placed {
    /// The records.
    pub records: Arc<StepRecords>,
    /// The fit of each rank's clock to its probes, by rank.
    fits: Vec<Option<ClockFit>>,
    /// Whether the run numbers its collectives by function.
    numbers_by_function: bool,
}

impl Placed {
    /// Places records by the fits of the clocks of all ranks that the run ever had. The step may have fewer ranks.
    #[must_use]
    pub fn new(records: Arc<StepRecords>, fits: &[Option<ClockFit>], numbers_by_function: bool) -> Self {
        let mut fits = fits.to_vec();
        fits.resize(records.ranks.len(), None);
        Self { records, fits, numbers_by_function }
    }

    /// Returns the fits of the ranks' clocks, tightened by the step's own collectives.
    fn tightened(&self) -> Vec<Option<ClockFit>> {
        let mut fits = self.fits.clone();
        let mut joined: BTreeMap<_, AlignedCollective> = BTreeMap::new();
        // A collective bounds the clocks only if its start and end were measured and, where its function is known, if each
        // of its ranks waits for all others.
        let proves = |bucket: &&BucketRecord| {
            bucket.source != Source::Derived
                && (!self.numbers_by_function || Function::from_seq(bucket.seq).waits_for_all())
        };
        for (rank, step) in self.records.ranks.iter().enumerate() {
            for bucket in step.iter().flat_map(|step| step.buckets.iter().filter(proves).take(TIGHTEN_WITH)) {
                if let Some(fit) = fits[rank] {
                    let times = (rank, fit.align(bucket.start), fit.align(bucket.end));
                    joined.entry((bucket.comm, bucket.seq)).or_default().push(times);
                }
            }
        }
        clocks::tighten(&mut fits, &joined.into_values().collect::<Vec<_>>());
        fits
    }

    /// Analyzes the step. This takes tens of milliseconds for thousands of ranks.
    #[must_use]
    pub fn analyze(&self) -> StepAnalysis {
        let mut analysis = step::analyze(&self.records, &self.tightened());
        analysis.collectives.shrink_to_fit();
        analysis
    }

    /// Returns the waterfall of the step: all ranks on one clock.
    #[must_use]
    pub fn waterfall(&self) -> Waterfall {
        waterfall::waterfall(&self.records, &self.tightened(), self.numbers_by_function)
    }
}

/// A step to analyze.
pub struct Work {
    placed: Placed,
    bytes: usize,
}

/// An analyzed step, with its records.
pub struct Done {
    /// The analysis.
    pub analysis: Arc<StepAnalysis>,
    records: Arc<StepRecords>,
    bytes: usize,
}

impl Done {
    /// Returns the records of each rank that are there, with their analysis.
    pub fn ranks(&self) -> impl Iterator<Item = (usize, &RankStep, &RankAnalysis)> {
        let records = self.records.ranks.iter().enumerate();
        let both = records.zip(&self.analysis.ranks);
        both.filter_map(|((rank, records), analysis)| Some((rank, records.as_deref()?, analysis.as_deref()?)))
    }
}

impl Work {
    /// Analyzes the step.
    #[must_use]
    pub fn analyze(self) -> Done {
        let analysis = Arc::new(self.placed.analyze());
        Done { analysis, records: self.placed.records, bytes: self.bytes }
    }
}

/// The closed steps of a run.
#[derive(Default)]
pub struct Steps {
    waiting: VecDeque<Closed>,
    waiting_bytes: usize,
    /// The size of the step that is being analyzed, in bytes.
    under_way: Option<usize>,
    kept: Kept,
    recalled: Recalled,
    /// Steps whose records were looked up on disk and cannot be shown.
    hidden: BTreeSet<u64>,
    analyzed: VecDeque<Arc<StepAnalysis>>,
    analyzed_bytes: usize,
    /// Whether analyzed steps had to leave.
    has_forgotten: bool,
    /// The number of steps that were skipped because they arrived faster than this machine analyzes them.
    given_up: u64,
    course: Course,
}

impl Steps {
    /// Sets the largest size of the records in memory, in bytes.
    pub fn keep(&mut self, bytes: usize) {
        self.kept = Kept::new(bytes);
    }

    /// Adds closed steps, oldest first.
    pub fn wait(&mut self, closed: Vec<Closed>) {
        for closed in closed {
            self.waiting_bytes += closed.bytes;
            self.waiting.push_back(closed);
        }
        while self.waiting_bytes > budget::WAITING_BYTES && self.waiting.len() > 1 {
            self.give_up_oldest();
        }
    }

    fn give_up_oldest(&mut self) {
        if let Some(oldest) = queue::pop(&mut self.waiting) {
            self.waiting_bytes -= oldest.bytes;
            self.given_up += 1;
        }
    }

    /// Returns the next step to analyze, unless one is being analyzed.
    pub fn next(&mut self, fits: impl FnOnce() -> (Vec<Option<ClockFit>>, bool)) -> Option<Work> {
        if self.under_way.is_some() {
            return None;
        }
        let Closed { records, bytes } = queue::pop(&mut self.waiting)?;
        self.waiting_bytes -= bytes;
        self.under_way = Some(bytes);
        let (fits, numbers_by_function) = fits();
        Some(Work { placed: Placed::new(Arc::new(records), &fits, numbers_by_function), bytes })
    }

    /// Returns true if a step could be analyzed now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.under_way.is_none() && !self.waiting.is_empty()
    }

    /// Returns true if every closed step is analyzed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.under_way.is_none() && self.waiting.is_empty()
    }

    /// Stores an analyzed step.
    pub fn finish(&mut self, done: Done) {
        self.under_way = None;
        if report::is_observed(&done.analysis) {
            self.course.push(done.analysis.step_nanos() as f64);
        }
        self.kept.push(done.records, done.bytes);
        self.analyzed_bytes += analyzed_bytes(&done.analysis);
        self.analyzed.push_back(done.analysis);
        while self.analyzed.len() > budget::ANALYZED_STEPS
            || (self.analyzed_bytes > budget::ANALYZED_BYTES && self.analyzed.len() > 1)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = queue::pop(&mut self.analyzed) {
            self.has_forgotten = true;
            self.analyzed_bytes -= analyzed_bytes(&oldest);
            self.hidden.remove(&oldest.step.0);
        }
    }

    /// Drops the older half of the steps in memory. Their records are still on disk.
    pub fn halve(&mut self) {
        self.recalled.clear();
        self.kept.shrink_to(self.kept.bytes() / 2);
        let (analyzed, waiting) = (self.analyzed_bytes / 2, self.waiting_bytes / 2);
        while self.analyzed_bytes > analyzed && self.analyzed.len() > 1 {
            self.forget_oldest();
        }
        while self.waiting_bytes > waiting && !self.waiting.is_empty() {
            self.give_up_oldest();
        }
    }

    /// Returns the size of all steps in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let records =
            self.waiting_bytes + self.under_way.unwrap_or(0) + self.kept.bytes() + self.recalled.bytes();
        records + self.analyzed_bytes + self.hidden.len() * size_of::<u64>()
    }

    /// Returns the number of steps that were skipped without analysis.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns the step time over the whole run, even of steps that are no longer in memory.
    #[must_use]
    pub fn course(&self) -> &Course {
        &self.course
    }

    /// Returns true if every step that was analyzed is still in memory.
    #[must_use]
    pub fn has_all_analyzed(&self) -> bool {
        !self.has_forgotten
    }

    /// Returns the analyzed steps in memory, oldest first.
    #[must_use]
    pub fn analyzed(&self) -> &VecDeque<Arc<StepAnalysis>> {
        &self.analyzed
    }

    /// Returns the records of one step, or of the newest complete one if `step` is `None`, if they are in memory.
    #[must_use]
    pub fn find(&self, step: Option<Step>) -> Option<&Arc<StepRecords>> {
        self.kept.find(step).or_else(|| self.recalled.find(step?))
    }

    /// Returns the analysis of a step, if it is in memory.
    #[must_use]
    pub fn find_analyzed(&self, step: Step) -> Option<&Arc<StepAnalysis>> {
        let at = self.analyzed.partition_point(|analyzed| analyzed.step < step);
        self.analyzed.get(at).filter(|analyzed| analyzed.step == step)
    }

    /// Stores a step that was read back from disk. Ranks whose records arrived too late for its analysis stay missing.
    pub fn recall(&mut self, mut closed: Closed) -> Arc<StepRecords> {
        if let Some(analyzed) = self.find_analyzed(closed.records.step) {
            leave_out_late(&mut closed.records, analyzed);
        }
        let records = Arc::new(closed.records);
        self.recalled.push(records.clone(), closed.bytes);
        records
    }

    /// Marks these steps as not to be shown, except those whose records are in memory. Only analyzed steps are marked,
    /// because no other step is ever offered.
    pub fn hide(&mut self, steps: StepRange) {
        let analyzed = self.analyzed.iter().map(|analyzed| analyzed.step);
        let gone = analyzed.filter(|&step| steps.contains(step) && self.find(Some(step)).is_none());
        let gone: Vec<u64> = gone.map(|step| step.0).collect();
        self.hidden.extend(gone);
    }

    /// Returns the steps whose records were looked up on disk and cannot be shown, in order.
    pub fn hidden(&self) -> impl Iterator<Item = u64> {
        self.hidden.iter().copied()
    }

    /// Returns the oldest step whose records are in memory. The records of all later steps are in memory too.
    #[must_use]
    pub fn kept_from(&self) -> Option<Step> {
        self.kept.iter().next().map(|records| records.step)
    }

    /// Returns the records in memory of the steps from `first` to `last`.
    pub fn kept_between(&self, first: Step, last: Step) -> impl Iterator<Item = &Arc<StepRecords>> {
        self.kept.iter().filter(move |records| first <= records.step && records.step <= last)
    }
}

/// Returns the approximate size of an analyzed step, in bytes.
fn analyzed_bytes(step: &StepAnalysis) -> usize {
    let replay = step.replay.as_ref().map_or(0, |replay| {
        replay.ranks.len() * size_of::<f32>() + replay.collectives.len() * size_of::<ReplayedCollective>()
    });
    let present = step.present().count();
    // Each rank, the step, its ranks, its collectives, and what is replayed of both.
    let allocations = present + 5;
    size_of::<StepAnalysis>()
        + 2 * size_of::<Arc<StepAnalysis>>()
        + step.ranks.len() * CLAIMED_RANK_BYTES
        + present * size_of::<RankAnalysis>()
        + step.collectives.len() * size_of::<CollectiveAnalysis>()
        + replay
        + allocations * ALLOCATION_BYTES
}

/// Removes the ranks whose records arrived too late for the analysis of the step.
pub fn leave_out_late(records: &mut StepRecords, analyzed: &StepAnalysis) {
    let late = records.ranks.iter_mut().zip(&analyzed.ranks).filter(|(_, known)| known.is_none());
    late.for_each(|(rank, _)| *rank = None);
}
