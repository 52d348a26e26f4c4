//! The records of one step, as the analysis reads them.

use wire::event::{BucketRecord, Source, Span, StepRecord};
use wire::ids::Step;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankStep {
    /// The begin, the end and the number of samples.
    pub record: StepRecord,
    /// The spans of the training thread.
    pub spans: Vec<Span>,
    /// The collectives that the rank took part in.
    pub buckets: Vec<BucketRecord>,
}

/// The records of all ranks for one step; `None` for a rank whose records have not arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecords {
    pub step: Step,
    /// The records of each rank. Behind a pointer, because a claim of many ranks costs its sender nothing.
    pub ranks: Vec<Option<Box<RankStep>>>,
    /// The number of ranks that nothing records: an imported job may have ranks without a file.
    pub absent: usize,
}

impl StepRecords {
    /// Returns true if the records of every rank are there that something records.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.ranks.iter().flatten().count() + self.absent >= self.ranks.len()
    }

    /// Returns true for a shadow step.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.ranks.iter().flatten().any(|rank| rank.record.shadow)
    }

    /// Returns true if the records of some collective say only when it was enqueued, and not when it ran.
    #[must_use]
    pub fn is_only_enqueued(&self) -> bool {
        let mut collectives = self.ranks.iter().flatten().flat_map(|rank| &rank.buckets);
        collectives.any(|collective| collective.source == Source::Derived)
    }
}
