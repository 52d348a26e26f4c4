//! What an agent records. One type from the ring to the wire to the server: nothing is translated on the way.

use serde::{Deserialize, Serialize};

use crate::clock::MonoNanos;
use crate::ids::{Bucket, Comm, Seq, Step};

/// Where a time stamp was taken. Values of different sources are never averaged silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Source {
    /// The host's monotonic clock around the call.
    HostClock = 0,
    /// A timed event on a device stream.
    DeviceEvent = 1,
    /// An activity record of the device's profiler.
    ActivityRecord = 2,
    /// Computed from other records.
    Derived = 3,
}

/// What a collective does. (What embeds the reducer only sums to all ranks.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Function {
    /// One rank's values to all.
    Broadcast = 0,
    /// Sums to one rank.
    Reduce = 1,
    /// Every rank's part to all.
    AllGather = 2,
    /// Sums, a part to each rank.
    ReduceScatter = 3,
    /// Sums to all.
    AllReduce = 4,
    /// One rank's values to another.
    SendReceive = 5,
    /// From every rank a part to every other.
    AllToAll = 8,
    /// Anything newer.
    Other = 15,
}

impl Function {
    const BITS: u32 = 4;

    /// Numbers a collective of a job that knows nothing of Paceline: NCCL counts those of each function by itself, and a
    /// [`Seq`] is one of a communicator.
    #[must_use]
    pub fn numbered(self, count: u64) -> Seq {
        Seq((count << Self::BITS) | self as u64)
    }

    /// What a collective that [`Self::numbered`] has numbered does.
    #[must_use]
    pub fn of(seq: Seq) -> Self {
        Self::from_code((seq.0 & ((1 << Self::BITS) - 1)) as u8)
    }

    /// The one with this number, which is also its `ncclFunc_t` in NCCL's profiler interface.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Broadcast,
            1 => Self::Reduce,
            2 => Self::AllGather,
            3 => Self::ReduceScatter,
            4 => Self::AllReduce,
            5 => Self::SendReceive,
            8 => Self::AllToAll,
            _ => Self::Other,
        }
    }

    /// As the field writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllReduce => "all-reduce",
            Self::SendReceive => "send-receive",
            Self::AllToAll => "all-to-all",
            Self::Other => "other",
        }
    }

    /// Bytes that count for its bandwidth, by those that one rank passes: the full, gathered size (METRICS.md).
    #[must_use]
    pub fn full_bytes(self, bytes: u64, ranks: u32) -> u64 {
        match self {
            Self::AllGather | Self::ReduceScatter => bytes * u64::from(ranks),
            _ => bytes,
        }
    }

    /// busbw / algbw among so many ranks (METRICS.md, after NVIDIA's nccl-tests); `None` where that is not known.
    #[must_use]
    pub fn bus_factor(self, ranks: u32) -> Option<f64> {
        let others = f64::from(ranks.saturating_sub(1)) / f64::from(ranks.max(1));
        match self {
            Self::AllReduce => Some(2.0 * others),
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => Some(others),
            Self::Broadcast | Self::Reduce | Self::SendReceive => Some(1.0),
            Self::Other => None,
        }
    }

    /// Whether no rank can have done it before the last one began.
    #[must_use]
    pub fn waits_for_all(self) -> bool {
        matches!(self, Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::AllToAll)
    }
}

/// What the training thread does. Time in none of these is `other` in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum SpanKind {
    /// Waiting for, or making, the next batch of samples.
    Input = 0,
    /// Copying it to the device.
    H2d = 1,
    /// The forward pass and the loss.
    Forward = 2,
    /// The backward pass.
    Backward = 3,
    /// The parameter update.
    Optimizer = 4,
    /// Blocked until a collective is done: in the reducer for the last bucket, in a layer that is split over ranks
    /// for its sum. Lies over the other kinds and wins.
    Blocked = 5,
}

impl SpanKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Input, Self::H2d, Self::Forward, Self::Backward, Self::Optimizer, Self::Blocked];

    /// As the field writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::H2d => "h2d",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Blocked => "blocked",
        }
    }
}

/// One stretch of the training thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The step it belongs to.
    pub step: Step,
    /// What the thread did.
    pub kind: SpanKind,
    /// When it began.
    pub begin: MonoNanos,
    /// When it ended.
    pub end: MonoNanos,
    /// Processor time the thread used in it, in nanoseconds; less than `end - begin` when it was off the
    /// processor. 0 where it was not measured.
    pub cpu_nanos: u64,
}

/// One finished step of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Which step.
    pub step: Step,
    /// When it began: the end of the step before.
    pub begin: MonoNanos,
    /// When it ended.
    pub end: MonoNanos,
    /// Samples (or tokens, as the job counts) this rank worked through.
    pub samples: u64,
    /// True for a shadow step: nothing else of it was recorded, to measure what recording costs.
    pub shadow: bool,
}

/// A collective was handed to the communicator. Sent so that a hang shows; superseded by its [`BucketRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The step it belongs to.
    pub step: Step,
    /// The communicator.
    pub comm: Comm,
    /// Its number on the communicator.
    pub seq: Seq,
    /// The bucket reduced.
    pub bucket: Bucket,
    /// Payload, in bytes.
    pub bytes: u64,
    /// When it was handed over.
    pub launch: MonoNanos,
}

/// One bucket's all-reduce on one rank, finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketRecord {
    /// The step it belongs to.
    pub step: Step,
    /// The communicator.
    pub comm: Comm,
    /// Its number on the communicator: joins the ranks.
    pub seq: Seq,
    /// The bucket reduced.
    pub bucket: Bucket,
    /// Payload, in bytes.
    pub bytes: u64,
    /// The last gradient of the bucket was written.
    pub ready: MonoNanos,
    /// The collective was handed to the communicator.
    pub launch: MonoNanos,
    /// It began on its stream or thread.
    pub start: MonoNanos,
    /// It finished.
    pub end: MonoNanos,
    /// Where `start` and `end` come from.
    pub source: Source,
}

/// Anything an agent records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The training thread did something.
    Span(Span),
    /// A step ended.
    Step(StepRecord),
    /// A collective was launched.
    Started(Started),
    /// A collective finished.
    Bucket(BucketRecord),
}

/// The kind of an [`Event`], for counting losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum EventKind {
    /// [`Event::Span`]
    Span = 0,
    /// [`Event::Step`]
    Step = 1,
    /// [`Event::Started`]
    Started = 2,
    /// [`Event::Bucket`]
    Bucket = 3,
}

impl EventKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Span, Self::Step, Self::Started, Self::Bucket];
}

impl Event {
    /// Which kind this is.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Span(_) => EventKind::Span,
            Self::Step(_) => EventKind::Step,
            Self::Started(_) => EventKind::Started,
            Self::Bucket(_) => EventKind::Bucket,
        }
    }

    /// The step it belongs to.
    #[must_use]
    pub fn step(&self) -> Step {
        match self {
            Self::Span(span) => span.step,
            Self::Step(step) => step.step,
            Self::Started(started) => started.step,
            Self::Bucket(bucket) => bucket.step,
        }
    }
}
