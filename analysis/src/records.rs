//! The records of one step, as the analysis reads them.

use wire::event::{BucketRecord, Span, StepRecord};
use wire::ids::Step;

/// The records of one rank for one step.
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
    /// The step.
    pub step: Step,
    /// The records of each rank.
    pub ranks: Vec<Option<RankStep>>,
}
