//! The steps of a run from the moment they close: waiting to be analysed, then analysed, as far as budgets go.
//!
//! [`Work`] is all that an analysis needs, so that it can be done elsewhere: the task that owns the runs hands it to
//! a thread and goes on. A run has one step under way at a time, so that steps stay in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use analysis::clocks::{self, AlignedCollective, ClockFit};
use analysis::replay::ReplayedCollective;
use analysis::step::{CollectiveAnalysis, RankAnalysis, StepAnalysis, StepRecords};
use analysis::{step, waterfall};
use wire::event::{BucketRecord, Function, Source};
use wire::ids::Step;
use wire::live::Waterfall;

use super::budget;
use super::incoming::{Closed, Kept};
use super::older::leave_out_late;
use super::recalled::Recalled;
use crate::store::StepRange;

/// Collectives of a step that tighten the clocks.
const TIGHTEN_WITH: usize = 16;

/// A step and the clocks of its ranks.
#[derive(Clone)]
pub struct Placed {
    /// The records.
    pub records: Arc<StepRecords>,
    /// Each rank's clock as fitted from probes, by rank.
    pub fits: Vec<Option<ClockFit>>,
    /// Whether the job knows nothing of Paceline.
    pub is_foreign: bool,
}

impl Placed {
    /// The ranks' clocks, tightened by the step's own collectives.
    fn tightened(&self) -> Vec<Option<ClockFit>> {
        let mut fits = self.fits.clone();
        let mut joined: BTreeMap<_, AlignedCollective> = BTreeMap::new();
        // Where only enqueueing is known, and where no rank waits for all others, a collective proves nothing.
        let proves = |bucket: &&BucketRecord| {
            bucket.source != Source::Derived && (!self.is_foreign || Function::of(bucket.seq).waits_for_all())
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

    /// The step in figures: tens of milliseconds for thousands of ranks.
    #[must_use]
    pub fn analyse(&self) -> StepAnalysis {
        let mut analysis = step::analyse(&self.records, &self.tightened());
        analysis.collectives.shrink_to_fit();
        analysis
    }

    /// The step over all ranks on one clock.
    #[must_use]
    pub fn waterfall(&self) -> Waterfall {
        waterfall::waterfall(&self.records, &self.tightened())
    }
}

/// A step to analyse.
pub struct Work {
    placed: Placed,
    bytes: usize,
}

/// An analysed step, with its records.
pub struct Done {
    /// The analysis.
    pub analysis: Arc<StepAnalysis>,
    records: Arc<StepRecords>,
    bytes: usize,
}

impl Work {
    /// Analyses the step.
    #[must_use]
    pub fn analyse(self) -> Done {
        let analysis = Arc::new(self.placed.analyse());
        Done { analysis, records: self.placed.records, bytes: self.bytes }
    }
}

/// The closed steps of a run.
#[derive(Default)]
pub struct Steps {
    waiting: VecDeque<Closed>,
    waiting_bytes: usize,
    /// Bytes of the step that is being analysed.
    under_way: Option<usize>,
    kept: Kept,
    recalled: Recalled,
    /// Steps whose records were sought and cannot be shown.
    hidden: BTreeSet<u64>,
    analysed: VecDeque<Arc<StepAnalysis>>,
    analysed_bytes: usize,
    /// Steps that were not analysed, since they came faster than this machine analyses them.
    given_up: u64,
}

impl Steps {
    /// Keeps this many bytes of records in memory.
    pub fn keep(&mut self, bytes: usize) {
        self.kept = Kept::new(bytes);
    }

    /// Takes in steps that closed, oldest first.
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
        if let Some(oldest) = self.waiting.pop_front() {
            self.waiting_bytes -= oldest.bytes;
            self.given_up += 1;
        }
    }

    /// The next step to analyse, unless one is under way.
    pub fn next(&mut self, fits: impl FnOnce() -> (Vec<Option<ClockFit>>, bool)) -> Option<Work> {
        if self.under_way.is_some() {
            return None;
        }
        let Closed { records, bytes } = self.waiting.pop_front()?;
        self.waiting_bytes -= bytes;
        self.under_way = Some(bytes);
        let (fits, is_foreign) = fits();
        Some(Work { placed: Placed { records: Arc::new(records), fits, is_foreign }, bytes })
    }

    /// True when a step could be analysed now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.under_way.is_none() && !self.waiting.is_empty()
    }

    /// True when every closed step is analysed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.under_way.is_none() && self.waiting.is_empty()
    }

    /// Takes an analysed step in.
    pub fn finish(&mut self, done: Done) {
        self.under_way = None;
        self.kept.push(done.records, done.bytes);
        self.analysed_bytes += analysed_bytes(&done.analysis);
        self.analysed.push_back(done.analysis);
        while self.analysed.len() > budget::ANALYSED_STEPS
            || (self.analysed_bytes > budget::ANALYSED_BYTES && self.analysed.len() > 1)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.analysed.pop_front() {
            self.analysed_bytes -= analysed_bytes(&oldest);
            self.hidden.remove(&oldest.step.0);
        }
    }

    /// Gives up the older half of what is in memory. What is given up is on disk.
    pub fn halve(&mut self) {
        self.recalled.clear();
        self.kept.shrink_to(self.kept.bytes() / 2);
        let (analysed, waiting) = (self.analysed_bytes / 2, self.waiting_bytes / 2);
        while self.analysed_bytes > analysed && self.analysed.len() > 1 {
            self.forget_oldest();
        }
        while self.waiting_bytes > waiting && !self.waiting.is_empty() {
            self.give_up_oldest();
        }
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let records =
            self.waiting_bytes + self.under_way.unwrap_or(0) + self.kept.bytes() + self.recalled.bytes();
        records + self.analysed_bytes + self.hidden.len() * size_of::<u64>()
    }

    /// Steps that were given up unanalysed.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// The analysed steps that are in memory, oldest first.
    #[must_use]
    pub fn analysed(&self) -> &VecDeque<Arc<StepAnalysis>> {
        &self.analysed
    }

    /// Records that are in memory, of one step or of the newest complete one.
    #[must_use]
    pub fn find(&self, step: Option<Step>) -> Option<&Arc<StepRecords>> {
        self.kept.find(step).or_else(|| self.recalled.find(step?))
    }

    /// An analysed step that is in memory.
    #[must_use]
    pub fn find_analysed(&self, step: Step) -> Option<&Arc<StepAnalysis>> {
        let at = self.analysed.partition_point(|analysed| analysed.step < step);
        self.analysed.get(at).filter(|analysed| analysed.step == step)
    }

    /// Takes in a step that was read back from disk. Ranks whose records came too late when it was analysed stay
    /// missing.
    pub fn recall(&mut self, mut closed: Closed) -> Arc<StepRecords> {
        if let Some(analysed) = self.find_analysed(closed.records.step) {
            leave_out_late(&mut closed.records, analysed);
        }
        let records = Arc::new(closed.records);
        self.recalled.push(records.clone(), closed.bytes);
        records
    }

    /// Notes that the records of these steps cannot be shown, but for those that are in memory. Only analysed steps are
    /// ever offered.
    pub fn hide(&mut self, steps: StepRange) {
        let analysed = self.analysed.iter().map(|analysed| analysed.step);
        let gone = analysed.filter(|&step| steps.contains(step) && self.find(Some(step)).is_none());
        let gone: Vec<u64> = gone.map(|step| step.0).collect();
        self.hidden.extend(gone);
    }

    /// Steps whose records were sought and cannot be shown, in order.
    pub fn hidden(&self) -> impl Iterator<Item = u64> {
        self.hidden.iter().copied()
    }

    /// The oldest step whose records are in memory; those of all later steps are, too.
    #[must_use]
    pub fn kept_from(&self) -> Option<Step> {
        self.kept.iter().next().map(|records| records.step)
    }

    /// Records of the steps from `first` to `last` that are in memory.
    pub fn kept_between(&self, first: Step, last: Step) -> impl Iterator<Item = &Arc<StepRecords>> {
        self.kept.iter().filter(move |records| first <= records.step && records.step <= last)
    }
}

/// About how many bytes an analysed step takes.
fn analysed_bytes(step: &StepAnalysis) -> usize {
    let replay = step.replay.as_ref().map_or(0, |replay| {
        replay.ranks.len() * size_of::<f32>() + replay.collectives.len() * size_of::<ReplayedCollective>()
    });
    size_of::<StepAnalysis>()
        + step.ranks.len() * size_of::<Option<RankAnalysis>>()
        + step.collectives.len() * size_of::<CollectiveAnalysis>()
        + replay
}
