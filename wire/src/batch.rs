//! The unit an agent sends: who speaks, what its clocks say, what it lost, and its records.
//!
//! Versions of the wire format:
//!
//! | version | change |
//! |---|---|
//! | 1 | the first |
//! | 2 | [`Note::Device`]. A batch without one is written as version 1, which older servers read |
//! | 3 | [`Note::Burst`], and more figures of devices. A batch without any is written as before |
//! | 4 | [`Activity::covered_nanos`](crate::burst::Activity::covered_nanos). A batch without it is written as before |
//! | 5 | [`Note::Host`], which every agent sends once a second: servers are upgraded before agents |

use serde::{Deserialize, Serialize};

use crate::burst::{Burst, BurstOutcome};
use crate::clock::{ClockAnchor, Probe};
use crate::device::{DeviceFigure, DeviceSample};
use crate::event::{Event, EventKind};
use crate::host::{HostFigure, HostSample};
use crate::ids::{BatchSeq, Bucket, Comm, Incarnation, Rank, RunId};

/// The newest version that this crate writes and reads.
pub const WIRE_VERSION: u16 = 5;

/// Most records in one batch: a drain of 100 ms holds far fewer (40 buckets * 3 steps/s * 0.1 s = 12), a long
/// server outage is sent as many batches.
pub const MAX_EVENTS: usize = 65_536;
/// Most bytes of a batch before compression: [`MAX_EVENTS`] bucket records of 67 bytes, rounded up.
pub const MAX_PLAIN_BYTES: usize = 8 << 20;
/// Most bytes of a batch on the wire; what the server reads of a request before it says no.
pub const MAX_WIRE_BYTES: usize = 4 << 20;

/// Most ranks of a run: it bounds what one hostile batch makes a server allocate (65,536 ranks x about
/// 300 bytes = 20 MB).
pub const MAX_RANKS: u32 = 65_536;

/// One batch of records of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The run it belongs to.
    pub run: RunId,
    /// The rank that speaks.
    pub rank: Rank,
    /// How many ranks the run has.
    pub world_size: u32,
    /// Which life of the rank's process.
    pub incarnation: Incarnation,
    /// The number of this batch in that life, from 0, without gaps.
    pub seq: BatchSeq,
    /// Monotonic and wall clock at the time of sending.
    pub anchor: ClockAnchor,
    /// Exchanges with the server since the last batch.
    pub probes: Vec<Probe>,
    /// What was lost since the process began, by kind and reason.
    pub drops: Vec<Drop>,
    /// Rare notes: who this is, how the buckets are laid out, what the device does, that it is over.
    pub notes: Vec<Note>,
    /// The records.
    pub events: Vec<Event>,
}

/// The header of an answer that says which batch is durable: [`Batch::receipt`]. An agent takes no other answer for an
/// acknowledgement, so that a proxy or a wrong address that answers 200 makes nothing vanish.
pub const RECEIPT_HEADER: &str = "paceline-receipt";

impl Batch {
    /// What names this batch among all: `RUN/RANK/INCARNATION/NUMBER`.
    #[must_use]
    pub fn receipt(&self) -> String {
        format!("{}/{}/{}/{}", self.run, self.rank, self.incarnation, self.seq)
    }

    /// About how many bytes it takes in memory.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(self.probes.as_slice())
            + size_of_val(self.drops.as_slice())
            + size_of_val(self.notes.as_slice())
            + size_of_val(self.events.as_slice())
            + self.notes.iter().map(Note::held_bytes).sum::<usize>()
    }

    /// The oldest version that can say what is in it.
    #[must_use]
    pub fn wire_version(&self) -> u16 {
        let of_note = |note: &Note| match note {
            Note::Hello(_) | Note::Layout(_) | Note::Bye(_) => 1,
            Note::Device(sample) => {
                sample.figures.keys().map(|figure| figure.wire_version()).max().unwrap_or(2)
            }
            Note::Burst(burst) if burst.covered().is_some() => 4,
            Note::Burst(_) => 3,
            Note::Host(_) => 5,
        };
        self.notes.iter().map(of_note).max().unwrap_or(1)
    }
}

/// Why records were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum DropReason {
    /// The thread's ring was full.
    RingFull = 0,
    /// The spool of unacknowledged batches reached its bound.
    SpoolFull = 1,
    /// The server refused the batch for good (a 4xx answer).
    Refused = 2,
    /// The process ended before the server acknowledged.
    Shutdown = 3,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::RingFull, Self::SpoolFull, Self::Refused, Self::Shutdown];

    /// The name as Prometheus and the report write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::SpoolFull => "spool_full",
            Self::Refused => "refused",
            Self::Shutdown => "shutdown",
        }
    }
}

/// A running count of lost records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Drop {
    /// What kind of record.
    pub kind: EventKind,
    /// Why.
    pub reason: DropReason,
    /// How many since the process began.
    pub count: u64,
}

/// Something rare that an agent says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    /// Who this process is. In the first batch of an incarnation.
    Hello(Hello),
    /// How parameters are laid out in buckets, at start and after the rebuild.
    Layout(Layout),
    /// The process ends in good order; no batch follows.
    Bye(Bye),
    /// What the rank's device does, once a second.
    Device(DeviceSample),
    /// What its devices did in a short while, when somebody asked.
    Burst(Burst),
    /// How the host treats the process, once a second.
    Host(HostSample),
}

impl Note {
    /// What its lists and texts take in memory, beside itself.
    fn held_bytes(&self) -> usize {
        match self {
            Self::Hello(hello) => {
                let texts = [&hello.name, &hello.host, &hello.clock, &hello.sample_unit, &hello.origin];
                texts.into_iter().map(String::len).sum()
            }
            Self::Layout(layout) => {
                let names = layout.buckets.iter().flat_map(|bucket| &bucket.parameters);
                let names: usize = names.map(|name| size_of::<String>() + name.len()).sum();
                size_of_val(layout.buckets.as_slice()) + names
            }
            Self::Bye(bye) => bye.reason.len(),
            Self::Device(sample) => {
                sample.device.len() + sample.figures.len() * size_of::<(DeviceFigure, u64)>()
            }
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

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hello {
    /// The name a person gave the run or the model; runs of one name are compared with each other.
    pub name: String,
    /// The host's name.
    pub host: String,
    /// Names the clock this process stamps with (the kernel's boot id and time namespace): processes of one
    /// name share one monotonic clock, and need no alignment among themselves. Empty where unknown.
    pub clock: String,
    /// The process id on that host.
    pub pid: u32,
    /// The rank within the host, as torchrun's `LOCAL_RANK`.
    pub local_rank: u32,
    /// What a "sample" is in [`crate::event::StepRecord::samples`]: `tokens`, `images`.
    pub sample_unit: String,
    /// Parameters of the model, 0 where the job does not say.
    pub parameters: u64,
    /// The way in: [`BY_REDUCER`], [`BY_NCCL`] or [`BY_PYTORCH`].
    pub origin: String,
}

/// The way in of a job that embeds the reducer, or marks its steps itself.
pub const BY_REDUCER: &str = "reducer";
/// The way in of a job that knows nothing of Paceline: NCCL tells of its collectives, and of nothing else.
pub const BY_NCCL: &str = "nccl";
/// As [`BY_NCCL`], but that NCCL carries nothing: PyTorch tells.
pub const BY_PYTORCH: &str = "pytorch";

/// Whether a way in is that of a job that knows nothing of Paceline, whose steps nobody marks.
#[must_use]
pub fn is_foreign(origin: &str) -> bool {
    matches!(origin, BY_NCCL | BY_PYTORCH)
}

/// One layout of parameters in buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Layout {
    /// The communicator the buckets are reduced on.
    pub comm: Comm,
    /// 0 at start, 1 after the rebuild.
    pub generation: u32,
    /// The buckets in launch order.
    pub buckets: Vec<LayoutBucket>,
}

/// One bucket of a [`Layout`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LayoutBucket {
    /// Its number.
    pub bucket: Bucket,
    /// Its size, in bytes.
    pub bytes: u64,
    /// The names of its parameters, in the order they lie in it.
    pub parameters: Vec<String>,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Bye {
    /// True when the job said that it reached its end.
    pub completed: bool,
    /// What went wrong, empty when nothing did.
    pub reason: String,
}
