//! The records of an agent. The ring, the wire and the server use the same types, so nothing is translated on the way.

use serde::{Deserialize, Serialize};

use crate::clock::MonoNanos;
use crate::ids::{Bucket, Comm, Seq, Step};

/// The source of a time stamp. Values of different sources are never averaged.
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

/// The function of a collective. The reducer runs only all-reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Function {
    /// Copies one rank's values to all ranks.
    Broadcast = 0,
    /// Sums the values of all ranks on one rank.
    Reduce = 1,
    /// Copies every rank's part to all ranks.
    AllGather = 2,
    /// Sums the values of all ranks and leaves one part of the sum on each rank.
    ReduceScatter = 3,
    /// Sums the values of all ranks on every rank.
    AllReduce = 4,
    /// Copies one rank's values to another rank.
    SendReceive = 5,
    /// Copies a part from every rank to every other rank.
    AllToAll = 8,
    /// Any other function.
    Other = 15,
}

impl Function {
    const BITS: u32 = 4;

    /// Returns the sequence number of a collective in an unmodified job. NCCL counts the collectives of each function
    /// separately, whereas a [`Seq`] counts all collectives of a communicator. The lowest bits of the number therefore
    /// hold the function.
    #[must_use]
    pub fn numbered(self, count: u64) -> Seq {
        Seq((count << Self::BITS) | self as u64)
    }

    /// Returns the count of a collective whose sequence number is from [`Self::numbered`].
    #[must_use]
    pub fn count_from_seq(seq: Seq) -> u64 {
        seq.0 >> Self::BITS
    }

    /// Returns the function of a collective whose sequence number is from [`Self::numbered`].
    #[must_use]
    pub fn from_seq(seq: Seq) -> Self {
        Self::from_code((seq.0 & ((1 << Self::BITS) - 1)) as u8)
    }

    /// Returns the function with this code, which is also its `ncclFunc_t` in NCCL's profiler interface.
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

    /// Returns the usual name.
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

    /// Returns the name of several such collectives.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcasts",
            Self::Reduce => "reduces",
            Self::AllGather => "all-gathers",
            Self::ReduceScatter => "reduce-scatters",
            Self::AllReduce => "all-reduces",
            Self::SendReceive => "messages",
            Self::AllToAll => "all-to-alls",
            Self::Other => "collectives",
        }
    }

    /// Returns the full bytes of a collective, which its bandwidth counts (`docs/metrics.md`, "algbw"): the gathered
    /// size. `bytes` is what one rank passes to the collective.
    #[must_use]
    pub fn full_bytes(self, bytes: u64, ranks: u32) -> u64 {
        match self {
            Self::AllGather | Self::ReduceScatter => bytes * u64::from(ranks),
            _ => bytes,
        }
    }

    /// Returns busbw / algbw for `ranks` ranks (`docs/metrics.md`, after NVIDIA's nccl-tests); `None` if it is unknown.
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

    /// Returns true if no rank can finish the collective before the last rank begins it.
    #[must_use]
    pub fn waits_for_all(self) -> bool {
        matches!(self, Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::AllToAll)
    }
}

/// The kind of work in a span of the training thread. Time outside all spans is `other` in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum SpanKind {
    /// Waiting for the next batch of samples, or making it.
    Input = 0,
    /// Copying the batch of samples to the device.
    H2d = 1,
    /// The forward pass and the loss.
    Forward = 2,
    /// The backward pass.
    Backward = 3,
    /// The parameter update.
    Optimizer = 4,
    /// Blocked until a collective finishes: in the reducer for the last bucket, or in a layer that is split over ranks
    /// for its sum. Overlaps the other kinds and takes precedence over them.
    Blocked = 5,
    /// Writing a checkpoint, or handing it to another thread.
    Checkpoint = 6,
    /// An evaluation between training steps, with its own input.
    Evaluation = 7,
    /// A collection of garbage, during which the interpreter does nothing else. Lies within other kinds and takes
    /// precedence over them.
    GarbageCollection = 8,
    /// A just-in-time compilation of the model. Lies within other kinds and takes precedence over them.
    Compilation = 9,
    /// A collective ran, and nothing shows whether the rank computed meanwhile. Overlaps the other kinds, which say what is
    /// assumed.
    Unclear = 10,
    /// The device ran nothing, and nothing recorded says why.
    Idle = 11,
}

impl SpanKind {
    /// The number of kinds.
    pub const COUNT: usize = Self::ALL.len();
    /// The kinds in which the thread does something other than a training step, in the order of their codes.
    pub const PAUSES: [Self; 4] =
        [Self::Checkpoint, Self::Evaluation, Self::GarbageCollection, Self::Compilation];

    /// The kinds of which a training step consists, in the order of their codes.
    pub const PHASES: [Self; 5] = [Self::Input, Self::H2d, Self::Forward, Self::Backward, Self::Optimizer];

    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 12] = [
        Self::Input,
        Self::H2d,
        Self::Forward,
        Self::Backward,
        Self::Optimizer,
        Self::Blocked,
        Self::Checkpoint,
        Self::Evaluation,
        Self::GarbageCollection,
        Self::Compilation,
        Self::Unclear,
        Self::Idle,
    ];

    /// Returns the usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::H2d => "h2d",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Blocked => "blocked",
            Self::Checkpoint => "checkpoint",
            Self::Evaluation => "evaluation",
            Self::GarbageCollection => "garbage collection",
            Self::Compilation => "compilation",
            Self::Unclear => "unclear",
            Self::Idle => "device idle",
        }
    }
}

/// A span of the training thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The step of the record.
    pub step: Step,
    /// The kind of work.
    pub kind: SpanKind,
    /// The beginning of the span.
    pub begin: MonoNanos,
    /// The end of the span.
    pub end: MonoNanos,
    /// The processor time that the thread used in the span, in nanoseconds. Less than `end - begin` if the thread was
    /// off the processor; 0 if it was not measured.
    pub cpu_nanos: u64,
}

/// A finished step of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// The step.
    pub step: Step,
    /// The beginning of the step: the end of the previous step.
    pub begin: MonoNanos,
    /// The end of the step.
    pub end: MonoNanos,
    /// The number of samples (or tokens, as the job counts) that this rank processed.
    pub samples: u64,
    /// True for a shadow step: only its length is recorded, in order to measure what recording costs.
    pub shadow: bool,
}

/// A collective that was handed to the communicator. Sent so that a hang is visible, and superseded by its
/// [`BucketRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The step of the record.
    pub step: Step,
    /// The communicator.
    pub comm: Comm,
    /// The sequence number on the communicator.
    pub seq: Seq,
    /// The bucket that is reduced.
    pub bucket: Bucket,
    /// The payload, in bytes.
    pub bytes: u64,
    /// The time at which the collective was handed to the communicator.
    pub launch: MonoNanos,
}

/// A finished collective of one bucket on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketRecord {
    /// The step of the record.
    pub step: Step,
    /// The communicator.
    pub comm: Comm,
    /// The sequence number on the communicator. It joins the records of all ranks.
    pub seq: Seq,
    /// The bucket that is reduced.
    pub bucket: Bucket,
    /// The payload, in bytes.
    pub bytes: u64,
    /// The time at which the last gradient of the bucket was written.
    pub ready: MonoNanos,
    /// The time at which the collective was handed to the communicator.
    pub launch: MonoNanos,
    /// The time at which the collective began on its stream or thread.
    pub start: MonoNanos,
    /// The time at which the collective finished.
    pub end: MonoNanos,
    /// The source of `start` and `end`.
    pub source: Source,
}

/// A record of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A span of the training thread.
    Span(Span),
    /// A finished step.
    Step(StepRecord),
    /// A collective that was launched.
    Started(Started),
    /// A collective that finished.
    Bucket(BucketRecord),
}

/// The kind of an [`Event`], for counting dropped records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum EventKind {
    /// An [`Event::Span`].
    Span = 0,
    /// An [`Event::Step`].
    Step = 1,
    /// An [`Event::Started`].
    Started = 2,
    /// An [`Event::Bucket`].
    Bucket = 3,
}

impl EventKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Span, Self::Step, Self::Started, Self::Bucket];
}

impl Event {
    /// Returns the kind of the record.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Span(_) => EventKind::Span,
            Self::Step(_) => EventKind::Step,
            Self::Started(_) => EventKind::Started,
            Self::Bucket(_) => EventKind::Bucket,
        }
    }

    /// Returns the step of the record.
    #[must_use]
    pub fn step(&self) -> Step {
        match self {
            Self::Span(span) => span.step,
            Self::Step(step) => step.step,
            Self::Started(started) => started.step,
            Self::Bucket(bucket) => bucket.step,
        }
    }

    /// Gives the record another step.
    pub fn set_step(&mut self, new_step: Step) {
        match self {
            Self::Span(span) => span.step = new_step,
            Self::Step(step) => step.step = new_step,
            Self::Started(started) => started.step = new_step,
            Self::Bucket(bucket) => bucket.step = new_step,
        }
    }
}
