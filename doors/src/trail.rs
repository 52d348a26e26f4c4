//! What callbacks leave behind: entries in a ring per thread. Appending takes no lock, allocates nothing (but the
//! thread's ring, once) and never waits.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rtrb::{Consumer, Producer, RingBuffer};
use wire::clock::MonoNanos;
pub use wire::event::Function;

use crate::messages::Message;

/// Slots of one thread's ring: 16,384 x 56 bytes = 0.9 MiB. It is emptied every 20 ms; in that time a proxy thread
/// that serves 32 channels of 100 collectives leaves 6,400 entries.
const RING_SLOTS: usize = 16_384;
/// Threads that may leave entries: NCCL has one or two per communicator.
const MOST_RINGS: usize = 256;

/// One of the ranks that this process is, by the order in which they were met. Nearly all processes are one; where a
/// process drives several GPUs, as JAX does, it is as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat(pub u8);

impl Seat {
    /// The only one, mostly.
    pub const FIRST: Self = Self(0);
}

/// Names one event of NCCL's. It is a number and never a pointer: NCCL ends a collective before its kernels begin, so
/// that whoever keeps objects behind its handles will sooner or later follow one that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u64);

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A collective, a send or a receive.
    Collective = 1,
    /// The part of a collective's kernel that serves one channel.
    Channel = 2,
    /// What is launched as one kernel; of it nothing is told.
    Group = 3,
    /// A collective of a step that is not observed in full: only its enqueueing is recorded.
    Unobserved = 4,
}

impl Handle {
    const KIND_BITS: u32 = 4;
    const SEAT_BITS: u32 = 8;

    /// The one that all groups have.
    pub const GROUP: Self = Self(Kind::Group as u64);

    /// A handle that no other event of this process has.
    #[must_use]
    pub fn new(kind: Kind, seat: Seat) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed) << (Self::KIND_BITS + Self::SEAT_BITS);
        Self(serial | u64::from(seat.0) << Self::KIND_BITS | kind as u64)
    }

    /// Whose it is.
    #[must_use]
    pub fn seat(self) -> Seat {
        Seat((self.0 >> Self::KIND_BITS) as u8)
    }

    /// As NCCL carries it around; never 0.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// What NCCL hands back. `None` where it is not one of ours.
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

/// What a device waits for its host to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The next batch is got.
    Input,
    /// It is copied to the device.
    Copy,
}

/// What one callback was told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Entry {
    /// A collective was enqueued by the thread that called NCCL.
    Enqueued {
        /// Names it.
        handle: Handle,
        /// The communicator, by the number that is the same on all ranks.
        communicator: u64,
        /// What it does.
        function: Function,
        /// The how manieth of its function on its communicator, the same on all ranks.
        seq: u64,
        /// Payload of this rank, in bytes.
        bytes: u64,
        /// How many channels it is spread over; some may do nothing.
        channels: u8,
        /// It is the first of its communicator since something told of an update of the parameters.
        begins: bool,
        /// When.
        at: MonoNanos,
    },
    /// A send or a receive was enqueued.
    Message {
        /// Names it.
        handle: Handle,
        /// As in [`Entry::Enqueued`].
        communicator: u64,
        /// Who sends what to whom.
        message: Message,
        /// Payload, in bytes.
        bytes: u64,
        /// As in [`Entry::Enqueued`].
        channels: u8,
        /// When.
        at: MonoNanos,
    },
    /// A collective is enqueued, and nobody will tell when it runs: a release of NCCL that says nothing of kernels, a
    /// range around the call, or a detail that was lowered.
    Issued {
        /// Names it.
        handle: Handle,
        /// When.
        at: MonoNanos,
    },
    /// A collective ran, by events before and behind it in its stream, on the host's clock.
    Timed {
        /// Names it.
        handle: Handle,
        /// The event before it.
        begin: MonoNanos,
        /// The event behind it.
        end: MonoNanos,
    },
    /// The main thread was in a phase that the job marks.
    Phase {
        /// Which.
        phase: Phase,
        /// It began.
        begin: MonoNanos,
        /// It ended.
        end: MonoNanos,
    },
    /// A channel of a collective's kernel began on the GPU.
    Began {
        /// Names it.
        handle: Handle,
        /// Its collective.
        parent: Handle,
        /// `%globaltimer` of the GPU, in nanoseconds; `None` before NCCL 2.27.
        gpu: Option<u64>,
        /// When the host saw it.
        at: MonoNanos,
    },
    /// A channel ended on the GPU.
    Ended {
        /// Names it.
        handle: Handle,
        /// As in [`Entry::Began`].
        gpu: Option<u64>,
        /// When the host saw it.
        at: MonoNanos,
    },
}

impl Entry {
    /// Which of this process's ranks it is about; `None` for all.
    #[must_use]
    pub fn seat(&self) -> Option<Seat> {
        match self {
            Self::Enqueued { handle, .. }
            | Self::Message { handle, .. }
            | Self::Issued { handle, .. }
            | Self::Timed { handle, .. }
            | Self::Began { handle, .. }
            | Self::Ended { handle, .. } => Some(handle.seat()),
            Self::Phase { .. } => None,
        }
    }
}

const _: () = assert!(size_of::<Entry>() == 56, "the arithmetic of RING_SLOTS");

static RINGS: Mutex<Vec<Consumer<Entry>>> = Mutex::new(Vec::new());
static LOST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static RING: RefCell<Option<Producer<Entry>>> = const { RefCell::new(None) };
}

/// Leaves an entry; when there is no room it is counted as lost.
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

/// Counts something that could not be told as lost.
pub fn lose() {
    LOST.fetch_add(1, Ordering::Relaxed);
}

fn register() -> Option<Producer<Entry>> {
    let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if rings.len() >= MOST_RINGS {
        return None;
    }
    let (producer, consumer) = RingBuffer::new(RING_SLOTS);
    rings.push(consumer);
    Some(producer)
}

/// Takes all entries, those of one thread in their order; forgets threads that ended. Returns how many were lost
/// since the process began.
pub fn take(entries: &mut Vec<Entry>) -> u64 {
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
    fn what_a_full_ring_cannot_take_is_counted_and_a_thread_that_ended_is_forgotten() {
        // Tests beside this one leave entries in the rings of their threads.
        let entry = Entry::Issued { handle: Handle::new(Kind::Collective, Seat(201)), at: MonoNanos(1) };
        let leave = move || (0..RING_SLOTS + 10).for_each(|_| append(entry));
        std::thread::spawn(leave).join().expect("it does not panic");
        let mut entries = Vec::new();
        let lost = take(&mut entries);
        let own = entries.iter().filter(|one| **one == entry).count();
        assert_eq!((lost, own), (10, RING_SLOTS));
        // Another test's thread may end between the two.
        let forgets_all = |_| {
            take(&mut entries);
            !RINGS.lock().expect("nobody panicked").iter().any(rtrb::Consumer::is_abandoned)
        };
        assert!((0..1_000).any(forgets_all));
    }

    #[test]
    fn a_handle_says_what_it_names_and_a_strangers_says_nothing() {
        let handle = Handle::new(Kind::Channel, Seat(7));
        assert_eq!(Handle::from_bits(handle.to_bits()), Some((handle, Kind::Channel)));
        assert_eq!(handle.seat(), Seat(7));
        assert_eq!(Handle::from_bits(0), None);
        assert_eq!(Handle::from_bits(0x7f00_1234_5678), None);
    }
}
