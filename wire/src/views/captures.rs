//! Captures: traces of the same steps of some ranks, by PyTorch's profiler, and what differs between two of them.

use serde::{Deserialize, Serialize};

use crate::ids::{Rank, Step};
use crate::traces::{TraceRowKind, TraceSum, TraceSummary, TraceTotals};

/// A capture: the ranks that were asked for a trace of the same steps, and their answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Capture {
    /// The number of the capture: when it was asked for, in milliseconds since the Unix epoch on the server's clock.
    pub id: u64,
    /// The first step that the ranks were asked for.
    pub first_step: Step,
    /// The number of steps that the ranks were asked for.
    pub steps: u32,
    /// Whether the server asked by itself, because of a verdict.
    pub automatic: bool,
    /// The answers, in the order in which the ranks were named: the suspected one first.
    pub ranks: Vec<CapturedRank>,
}

impl Capture {
    /// Returns whether every rank has answered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.ranks.iter().all(|answer| answer.outcome != CaptureOutcome::Waiting)
    }

    /// Returns the ranks with a trace, in the order in which they were named.
    pub fn stored(&self) -> impl Iterator<Item = Rank> {
        let stored = self.ranks.iter().filter(|answer| matches!(answer.outcome, CaptureOutcome::Stored(_)));
        stored.map(|answer| answer.rank)
    }
}

/// The answer of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CapturedRank {
    /// The rank.
    pub rank: Rank,
    /// Its answer.
    pub outcome: CaptureOutcome,
}

/// The answer of a rank that was asked for a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum CaptureOutcome {
    /// The rank has not answered yet.
    Waiting,
    /// The rank's trace is stored.
    Stored(StoredTrace),
    /// There is no trace.
    Refused {
        /// The reason.
        reason: String,
    },
}

/// A stored trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoredTrace {
    /// The first step in the trace. It is later than the one that was asked for if the rank was beyond that.
    pub first_step: Step,
    /// The number of steps in the trace.
    pub steps: u32,
    /// How long starting and stopping the profiler held the training thread, in nanoseconds.
    pub pause_nanos: u64,
    /// The size of the compressed trace, in bytes.
    pub bytes: u64,
    /// The checksum (CRC-32) of the compressed trace.
    pub crc32: u32,
}

/// What ran on a rank of an imported run, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankTrace {
    /// The rank.
    pub rank: Rank,
    /// What it ran.
    pub summary: TraceSummary,
}

/// What differs between the traces of two ranks. Times are means per step, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceComparison {
    /// The rank that is compared.
    pub rank: Rank,
    /// The rank that it is compared with.
    pub against: Rank,
    /// The first step of the rank's trace.
    pub first_step: Step,
    /// The totals of the rank.
    pub own: TraceTotals,
    /// The totals of the other rank.
    pub other: TraceTotals,
    /// What takes one of the ranks longer: at most 50 rows, what takes the compared rank longest in addition first.
    pub rows: Vec<TraceRow>,
    /// The number of rows that are left out because they differ less.
    pub left_out: u64,
}

/// One operator, kernel or range on two ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceRow {
    /// What it is.
    pub kind: TraceRowKind,
    /// Its name.
    pub name: String,
    /// Its self time per step on the compared rank.
    pub own_nanos: f64,
    /// Its self time per step on the other rank.
    pub other_nanos: f64,
    /// How often it runs per step on the compared rank.
    pub own_calls: f64,
    /// How often it runs per step on the other rank.
    pub other_calls: f64,
    /// Of a kernel: how long the device of the compared rank ran nothing just before it, per step.
    pub own_gap_nanos: f64,
    /// The same on the other rank.
    pub other_gap_nanos: f64,
}

impl TraceRow {
    /// Returns the row of a summary of `steps` steps, compared with nothing.
    #[must_use]
    pub fn alone(sum: TraceSum, steps: u32) -> Self {
        let per_step = |value: u64| value as f64 / f64::from(steps.max(1));
        Self {
            kind: sum.kind,
            own_nanos: per_step(sum.nanos),
            own_calls: per_step(sum.calls),
            own_gap_nanos: per_step(sum.gap_nanos),
            other_nanos: 0.0,
            other_calls: 0.0,
            other_gap_nanos: 0.0,
            name: sum.name,
        }
    }

    /// Returns how much longer it takes per step on the compared rank, in nanoseconds.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.own_nanos - self.other_nanos
    }

    /// Returns whether only the compared rank runs it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.other_calls == 0.0
    }

    /// Returns whether only the other rank runs it.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.own_calls == 0.0
    }
}
