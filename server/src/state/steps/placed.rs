//! A step on the clocks of its ranks, and its analysis.

use std::collections::BTreeMap;
use std::sync::Arc;

use analysis::records::{RankStep, StepRecords};
use analysis::step::{RankAnalysis, StepAnalysis};
use analysis::{step, waterfall};
use timing::clocks::{self, AlignedCollective, ClockFit};
use wire::event::{BucketRecord, Function, Source};
use wire::live::Waterfall;

/// The largest number of collectives of a rank in a step that tighten the clocks.
const TIGHTEN_WITH: usize = 16;

/// The records of a step and the clocks of its ranks.
#[derive(Clone)]
pub struct Placed {
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
    pub(super) placed: Placed,
    pub(super) bytes: usize,
}

/// An analyzed step, with its records.
pub struct Done {
    pub analysis: Arc<StepAnalysis>,
    pub(super) records: Arc<StepRecords>,
    pub(super) bytes: usize,
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
    #[must_use]
    pub fn analyze(self) -> Done {
        let analysis = Arc::new(self.placed.analyze());
        Done { analysis, records: self.placed.records, bytes: self.bytes }
    }
}

/// Removes the ranks whose records arrived too late for the analysis of the step.
pub fn leave_out_late(records: &mut StepRecords, analyzed: &StepAnalysis) {
    let late = records.ranks.iter_mut().zip(&analyzed.ranks).filter(|(_, known)| known.is_none());
    late.for_each(|(rank, _)| *rank = None);
}
