//! A batch: the unit that an agent sends. It holds the agent's identity, clock readings, drop counts and records.

use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;
use crate::burst::{Burst, BurstOutcome};
use crate::clock::{ClockAnchor, MonoNanos, Probe};
use crate::device::{DeviceFigure, DeviceSample};
use crate::event::{Event, EventKind};
use crate::host::{HostFigure, HostSample};
use crate::ids::{BatchSeq, Incarnation, Rank, RunId, Seq, Step};
use crate::layout::Layout;
use crate::stacks::{LongStep, SpanLine, Stacks};
use crate::traces::TraceSummary;
use crate::workload::Workload;

/// The version of the wire format that this crate writes and reads.
pub const WIRE_VERSION: u16 = 1;

/// The largest number of records in one batch. A drain interval of 100 ms yields far fewer (40 buckets * 3 steps/s *
/// 0.1 s = 12). A long server outage is sent as many batches.
pub const MAX_EVENTS: usize = 65_536;
/// The largest batch before compression, in bytes: [`MAX_EVENTS`] bucket records of 67 bytes, rounded up.
pub const MAX_PLAIN_BYTES: usize = 8 << 20;
/// The largest batch on the wire, in bytes. The server reads no more of a request before it refuses it.
pub const MAX_WIRE_BYTES: usize = 4 << 20;

/// The largest number of ranks in a run. It limits how much memory one hostile batch makes a server allocate (65,536
/// ranks x about 300 bytes = 20 MB).
pub const MAX_RANKS: u32 = 65_536;

/// One batch of records of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The run that the batch belongs to.
    pub run: RunId,
    /// The rank that sends the batch.
    pub rank: Rank,
    /// The number of ranks in the run.
    pub world_size: u32,
    /// The incarnation of the rank's process.
    pub incarnation: Incarnation,
    /// The sequence number of this batch in its incarnation, from 0, without gaps.
    pub seq: BatchSeq,
    /// The monotonic and the wall clock at the time of sending.
    pub anchor: ClockAnchor,
    /// The probes since the last batch.
    pub probes: Vec<Probe>,
    /// The records lost since the process began, by kind and reason.
    pub drops: Vec<Drop>,
    /// Rare notes: the process's identity, the layout of buckets, samples of the device and the host, the end of the
    /// run.
    pub notes: Vec<Note>,
    /// The records.
    pub events: Vec<Event>,
}

/// The header of an answer that names the stored batch ([`Batch::receipt`]). An agent treats no other answer as an
/// acknowledgment, so that no batch is lost to a proxy or a wrong address that answers 200.
pub const RECEIPT_HEADER: &str = "paceline-receipt";

impl Batch {
    /// Returns the name of this batch, unique among all batches: `RUN/RANK/INCARNATION/SEQ`.
    #[must_use]
    pub fn receipt(&self) -> String {
        format!("{}/{}/{}/{}", self.run, self.rank, self.incarnation, self.seq)
    }

    /// Returns roughly how many bytes the batch takes in memory.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(self.probes.as_slice())
            + size_of_val(self.drops.as_slice())
            + size_of_val(self.notes.as_slice())
            + size_of_val(self.events.as_slice())
            + self.notes.iter().map(Note::held_bytes).sum::<usize>()
    }
}

/// The reason why records were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum DropReason {
    /// The thread's ring was full.
    RingFull = 0,
    /// The spool of unacknowledged batches reached its limit.
    SpoolFull = 1,
    /// The server refused the batch permanently (a 4xx answer).
    Refused = 2,
    /// The process ended before the server acknowledged the batch.
    Shutdown = 3,
}

impl DropReason {
    /// All reasons, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::RingFull, Self::SpoolFull, Self::Refused, Self::Shutdown];

    /// Returns the name used in Prometheus and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::SpoolFull => "spool_full",
            Self::Refused => "refused",
            Self::Shutdown => "shutdown",
        }
    }

    /// Returns what the reason means, as a phrase for users.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::RingFull => {
                "a thread's event ring was full: the drain thread got no processor for too long"
            }
            Self::SpoolFull => "the spool was full: the server could not be reached for too long",
            Self::Refused => "the server refused a batch for good: see the server's log",
            Self::Shutdown => "the process ended before the server acknowledged its last batches",
        }
    }
}

/// A running count of lost records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Drop {
    /// The kind of record.
    pub kind: EventKind,
    /// The reason.
    pub reason: DropReason,
    /// The number of records lost since the process began.
    pub count: u64,
}

/// Returns the sum of counts or times from outside. A hostile batch may hold any value, so the sum saturates.
#[must_use]
pub fn total(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(0, u64::saturating_add)
}

/// A rare message in a batch, in addition to its records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    /// The hello message: the process's identity. Sent in the first batch of an incarnation.
    Hello(Hello),
    /// The layout of parameters in buckets. Sent at the start, after the rebuild, and when other parameters are unused.
    Layout(Layout),
    /// The end-of-run message. No batch follows it.
    Bye(Bye),
    /// A sample of the rank's device. Sent once per second.
    Device(DeviceSample),
    /// A burst of the rank's device. Sent on request.
    Burst(Burst),
    /// A sample of the host. Sent once per second.
    Host(HostSample),
    /// The rank's labels and the versions of its software. Sent at the start, and when the rank learns more.
    Attributes(Attributes),
    /// The stacks of the rank's threads. Sent on request.
    Stacks(Stacks),
    /// The workload of the rank. Sent when the job states it.
    Workload(Workload),
    /// The number of the first step of this process, as the job states it: the updates that the model had before, by its
    /// checkpoint. Agents of unmodified jobs count from 0 in every process.
    Resumed {
        /// The number.
        step: Step,
    },
    /// What ran in the traced steps of the rank, by name. Sent by an import, with the last records.
    Traced(TraceSummary),
    /// The stacks of the rank's threads in a step that lasts far longer than usual. Sent without a request.
    LongStep(LongStep),
    /// A line of the job's own code, and what the rank does there. Sent once.
    Line(SpanLine),
    /// What the rank waits in while its steps are not known. Such a collective has no record, which would name its step.
    Waits {
        /// The collective; `None` once it has ended.
        waiting: Option<Waiting>,
    },
}

/// A collective that a rank waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The sequence number on the communicator of all ranks.
    pub seq: Seq,
    /// The time at which the collective was handed to the communicator.
    pub launch: MonoNanos,
}

impl Note {
    /// Returns how much memory the note's lists and texts take in addition to the note itself, in bytes.
    fn held_bytes(&self) -> usize {
        match self {
            Self::Hello(hello) => {
                let texts = [&hello.name, &hello.host, &hello.clock, &hello.sample_unit];
                texts.into_iter().map(String::len).sum()
            }
            Self::Layout(layout) => layout.bytes(),
            Self::Bye(bye) => bye.reason.len(),
            Self::Device(sample) => {
                sample.device.len() + sample.figures.len() * size_of::<(DeviceFigure, u64)>()
            }
            Self::Attributes(attributes) => attributes.bytes(),
            Self::Stacks(stacks) => stacks.bytes(),
            Self::Workload(workload) => workload.bytes(),
            Self::Resumed { .. } | Self::Waits { .. } => 0,
            Self::Traced(summary) => summary.bytes(),
            Self::LongStep(long) => long.bytes(),
            Self::Line(line) => line.bytes(),
            Self::Host(sample) => sample.cores.len() + sample.figures.len() * size_of::<(HostFigure, u64)>(),
            Self::Burst(burst) => match &burst.outcome {
                BurstOutcome::Refused { reason } => reason.len(),
                BurstOutcome::Recorded(activity) => {
                    let kernels = &activity.kernels;
                    kernels.iter().map(|kernel| size_of_val(kernel) + kernel.name.len()).sum()
                }
            },
        }
    }
}

impl From<Attributes> for Note {
    fn from(attributes: Attributes) -> Self {
        Self::Attributes(attributes)
    }
}

/// The identity of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hello {
    /// The name that the user gave the run or the model. Runs of one name are compared with each other.
    pub name: String,
    /// The host name.
    pub host: String,
    /// The name of the clock that stamps this process's records: the kernel's boot id and time namespace. Processes
    /// with the same name share one monotonic clock and need no alignment with each other. Empty if unknown.
    pub clock: String,
    /// The process id on the host.
    pub pid: u32,
    /// The local rank, as in torchrun's `LOCAL_RANK`.
    pub local_rank: u32,
    /// The unit of [`crate::event::StepRecord::samples`]: `tokens`, `images`.
    pub sample_unit: String,
    /// The number of parameters of the model; 0 if the job does not state it.
    pub parameters: u64,
    /// The kind of instrumentation that records the process.
    pub instrumentation: Instrumentation,
}

/// The kind of instrumentation that records a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Instrumentation {
    /// The reducer, or the job's own marks of steps and phases.
    Reducer,
    /// Hooks in an unmodified job, in which NCCL reports collectives and nothing else.
    Nccl,
    /// Hooks in an unmodified job without NCCL, in which PyTorch reports collectives.
    PyTorch,
    /// A simulation.
    Simulator,
    /// A trace that another tool recorded, imported afterwards.
    Trace,
}

impl Instrumentation {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Reducer, Self::Nccl, Self::PyTorch, Self::Simulator, Self::Trace];

    /// Returns the name used in batches and in stored runs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reducer => "reducer",
            Self::Nccl => "nccl",
            Self::PyTorch => "pytorch",
            Self::Simulator => "simulator",
            Self::Trace => "trace",
        }
    }

    /// Returns true if collectives are numbered by function ([`Function::numbered`](crate::event::Function::numbered)):
    /// nothing in the job counts them all.
    #[must_use]
    pub fn numbers_by_function(self) -> bool {
        self.is_unmodified_job() || self == Self::Trace
    }

    /// Returns true if the job is unmodified. Its steps are then inferred, because nothing marks them.
    #[must_use]
    pub fn is_unmodified_job(self) -> bool {
        matches!(self, Self::Nccl | Self::PyTorch)
    }
}

/// The end of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Bye {
    /// True if the job reported that it reached its end.
    pub completed: bool,
    /// The error that ended the process; empty if there was none.
    pub reason: String,
}
