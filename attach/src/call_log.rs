//! The call log: hooks append one entry per call to a ring of the calling thread. An append takes no lock and never
//! blocks. It allocates nothing, except for the ring on a thread's first append.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rtrb::{Consumer, Producer, RingBuffer};
use wire::clock::MonoNanos;
pub use wire::event::Function;
use wire::event::SpanKind;

use crate::marks::Begin;
use crate::message::Message;

/// The slots of one thread's ring: 16,384 x 56 bytes = 0.9 MiB. The ring is emptied every 20 ms where NCCL is
/// in use. In that time, a proxy thread that serves 32 channels of 100 collectives appends 6,400 entries.
const RING_SLOTS: usize = 16_384;
/// The largest number of threads with a ring. NCCL has one or two per communicator.
const MAX_RINGS: usize = 256;

/// A rank of this process, by the order in which the process's ranks appeared. Most processes are one rank; a process
/// that drives several GPUs, as JAX does, is several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRank(pub u8);

impl LocalRank {
    /// The first local rank, which is the only one in most processes.
    pub const FIRST: Self = Self(0);
}

/// Identifies an event of NCCL. A handle is a number and never a pointer: NCCL ends a collective before its kernels
/// start, so a pointer in a handle might be followed after its object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u64);

/// What a handle identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A collective, a send or a receive.
    Collective = 1,
    /// The part of a collective's kernel that serves one channel.
    Channel = 2,
    /// A group of operations, launched as one kernel. Nothing is recorded of it.
    Group = 3,
    /// A collective of a step that is not observed in full: only its enqueueing is recorded.
    Unobserved = 4,
}

impl Handle {
    const KIND_BITS: u32 = 4;
    const LOCAL_RANK_BITS: u32 = 8;

    /// The handle shared by all groups.
    pub const GROUP: Self = Self(Kind::Group as u64);

    /// Creates a handle that is unique in this process.
    #[must_use]
    pub fn new(kind: Kind, local_rank: LocalRank) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed) << (Self::KIND_BITS + Self::LOCAL_RANK_BITS);
        Self(serial | u64::from(local_rank.0) << Self::KIND_BITS | kind as u64)
    }

    /// Returns the local rank that the event belongs to.
    #[must_use]
    pub fn local_rank(self) -> LocalRank {
        LocalRank((self.0 >> Self::KIND_BITS) as u8)
    }

    /// Returns the bits that NCCL stores for us; never 0.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Reads the bits that NCCL passes back. Returns `None` if they are not a handle of this library.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<(Self, Kind)> {
        let kind = match bits & ((1 << Self::KIND_BITS) - 1) {
            1 => Kind::Collective,
            2 => Kind::Channel,
            3 => Kind::Group,
            4 => Kind::Unobserved,
            _ => return None,
        };
        Some((Self(bits), kind))
    }
}

/// A phase of a step: one that a device may wait for, or what the host or the device computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The host reads the next batch of input.
    Input,
    /// The host copies the batch to the device.
    Copy,
    /// The forward pass is computed.
    Forward,
    /// The backward pass is computed, until its last gradient.
    Backward,
    /// The parameters are updated.
    Optimizer,
    /// The host writes a checkpoint, or hands it to another thread.
    Checkpoint,
    /// The host evaluates the model.
    Evaluation,
    /// The interpreter collects garbage.
    GarbageCollection,
    /// The host compiles the model.
    Compilation,
    /// The host waits for a collective.
    Wait,
}

impl Phase {
    /// The phases by their codes.
    const ALL: [Self; 10] = [
        Self::Input,
        Self::Copy,
        Self::Forward,
        Self::Backward,
        Self::Optimizer,
        Self::Checkpoint,
        Self::Evaluation,
        Self::GarbageCollection,
        Self::Compilation,
        Self::Wait,
    ];

    /// Reads a code; `None` for an unknown one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    #[must_use]
    pub fn span(self) -> SpanKind {
        match self {
            Self::Input => SpanKind::Input,
            Self::Copy => SpanKind::H2d,
            Self::Forward => SpanKind::Forward,
            Self::Backward => SpanKind::Backward,
            Self::Optimizer => SpanKind::Optimizer,
            Self::Checkpoint => SpanKind::Checkpoint,
            Self::Evaluation => SpanKind::Evaluation,
            Self::GarbageCollection => SpanKind::GarbageCollection,
            Self::Compilation => SpanKind::Compilation,
            Self::Wait => SpanKind::Blocked,
        }
    }

    /// Returns whether a device that has nothing left to do waits for the host in this phase.
    #[must_use]
    pub fn holds_device_up(self) -> bool {
        !matches!(self, Self::Forward | Self::Backward | Self::Optimizer | Self::Wait)
    }
}

/// An entry of the call log: the content of one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Entry {
    /// A collective was enqueued by the thread that called NCCL.
    Enqueued {
        /// Identifies the collective.
        handle: Handle,
        /// Identifies the communicator; the same on all ranks.
        communicator: u64,
        /// The operation.
        function: Function,
        /// The index among the collectives of this function on this communicator; the same on all ranks.
        seq: u64,
        /// The payload of this rank, in bytes.
        bytes: u64,
        /// The number of channels assigned; some may stay idle.
        channels: u8,
        /// What is known of the update, if this is the communicator's first collective after an optimizer update.
        begins: Option<Begin>,
        /// The time of the call.
        at: MonoNanos,
    },
    /// A send or a receive was enqueued.
    Message {
        /// Identifies the message.
        handle: Handle,
        /// See [`Entry::Enqueued`].
        communicator: u64,
        /// The sender, the receiver and the index.
        message: Message,
        /// The payload, in bytes.
        bytes: u64,
        /// See [`Entry::Enqueued`].
        channels: u8,
        /// The time of the call.
        at: MonoNanos,
    },
    /// A collective was enqueued, and its kernel will not be reported: this NCCL release reports no kernels, the entry
    /// comes from an NVTX range around the call, or the step is not observed in full.
    Issued {
        /// Identifies the collective.
        handle: Handle,
        /// The time of the call.
        at: MonoNanos,
    },
    /// A collective was handed over earlier than it was reported as enqueued.
    Launched {
        /// Identifies the collective.
        handle: Handle,
        /// When it was handed over.
        at: MonoNanos,
    },
    /// A collective ran, by CUDA events before and after it on its stream; times on the host's clock.
    Timed {
        /// Identifies the collective.
        handle: Handle,
        /// The event before the collective.
        begin: MonoNanos,
        /// The event after the collective.
        end: MonoNanos,
    },
    /// The main thread was in a phase that the job marks, or the device was.
    Phase {
        phase: Phase,
        /// When the host enqueued the begin of the phase, if the device was in it. The other times, by CUDA events, are
        /// those of the device, on the host's clock.
        enqueued: Option<MonoNanos>,
        /// The start of the phase.
        begin: MonoNanos,
        /// The end of the phase.
        end: MonoNanos,
        /// The processor time of the thread in the phase, in nanoseconds; 0 if it was not measured.
        used: u64,
    },
    /// A channel of a collective's kernel started on the GPU.
    Began {
        /// Identifies the channel.
        handle: Handle,
        /// The collective of the channel.
        parent: Handle,
        /// The GPU's `%globaltimer`, in nanoseconds; `None` before NCCL 2.27.
        gpu: Option<u64>,
        /// When the host saw the start.
        at: MonoNanos,
    },
    /// A channel ended on the GPU.
    Ended {
        /// Identifies the channel.
        handle: Handle,
        /// See [`Entry::Began`].
        gpu: Option<u64>,
        /// When the host saw the end.
        at: MonoNanos,
    },
}

impl Entry {
    /// Returns the local rank that the entry is about; `None` for all ranks of the process.
    #[must_use]
    pub fn local_rank(&self) -> Option<LocalRank> {
        match self {
            Self::Enqueued { handle, .. }
            | Self::Message { handle, .. }
            | Self::Issued { handle, .. }
            | Self::Launched { handle, .. }
            | Self::Timed { handle, .. }
            | Self::Began { handle, .. }
            | Self::Ended { handle, .. } => Some(handle.local_rank()),
            Self::Phase { .. } => None,
        }
    }
}

const _: () = assert!(size_of::<Entry>() == 56, "RING_SLOTS is sized for entries of 56 bytes");

static RINGS: Mutex<Vec<Consumer<Entry>>> = Mutex::new(Vec::new());
static LOST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static RING: RefCell<Option<Producer<Entry>>> = const { RefCell::new(None) };
}

/// Appends an entry. Without space, the entry is counted as lost.
pub fn append(entry: Entry) {
    let pushed = RING.try_with(|ring| {
        let Ok(mut ring) = ring.try_borrow_mut() else { return false };
        if ring.is_none() {
            *ring = register();
        }
        ring.as_mut().is_some_and(|ring| ring.push(entry).is_ok())
    });
    if !pushed.unwrap_or(false) {
        lose();
    }
}

/// Counts an entry that could not be written as lost.
pub fn lose() {
    LOST.fetch_add(1, Ordering::Relaxed);
}

fn register() -> Option<Producer<Entry>> {
    let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if rings.len() >= MAX_RINGS {
        return None;
    }
    let (producer, consumer) = RingBuffer::new(RING_SLOTS);
    rings.push(consumer);
    Some(producer)
}

/// Moves all entries into `entries`, those of one thread in order, and removes the rings of threads that ended. Returns
/// the number of entries lost since the process started.
pub fn drain(entries: &mut Vec<Entry>) -> u64 {
    let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    rings.retain_mut(|ring| {
        let is_over = ring.is_abandoned();
        if let Ok(chunk) = ring.read_chunk(ring.slots()) {
            entries.extend(chunk);
        }
        !is_over
    });
    LOST.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_counts_dropped_entries_and_rings_of_ended_threads_are_removed() {
        // Other tests append entries to the rings of their threads at the same time.
        let entry = Entry::Issued { handle: Handle::new(Kind::Collective, LocalRank(201)), at: MonoNanos(1) };
        let leave = move || (0..RING_SLOTS + 10).for_each(|_| append(entry));
        std::thread::scope(|scope| scope.spawn(leave).join()).expect("the thread does not panic");
        let mut entries = Vec::new();
        let lost = drain(&mut entries);
        let own = entries.iter().filter(|other| **other == entry).count();
        assert_eq!((lost, own), (10, RING_SLOTS));
        // A thread of another test may end between the two calls.
        let forgets_all = |_| {
            drain(&mut entries);
            !RINGS.lock().expect("no thread panicked").iter().any(rtrb::Consumer::is_abandoned)
        };
        assert!((0..1_000).any(forgets_all));
    }

    #[test]
    fn a_handle_identifies_its_event_and_foreign_bits_are_rejected() {
        let handle = Handle::new(Kind::Channel, LocalRank(7));
        assert_eq!(Handle::from_bits(handle.to_bits()), Some((handle, Kind::Channel)));
        assert_eq!(handle.local_rank(), LocalRank(7));
        assert_eq!(Handle::from_bits(0), None);
        assert_eq!(Handle::from_bits(0x7f00_1234_5678), None);
    }
}
