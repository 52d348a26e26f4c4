//! The door of calls: this library's functions stand before NCCL's own, where `LD_PRELOAD` names it.
//!
//! For releases of NCCL whose profiler interface tells nothing of kernels (before 2.26), goes wrong, or that have none
//! (before 2.23). A job that is linked with NCCL, as PyTorch is, calls the functions of [`exports`]; they put an event
//! before the collective and one behind it on its stream ([`events`]) and call NCCL's. A job that asks the loader for
//! NCCL's functions by itself (JAX) is not seen here.
//!
//! What is called inside a group runs when the group ends, and has the time of the whole group. Collectives of
//! communicators that do not block may run later than their call, and so later than the event behind them.

mod events;
mod exports;
mod group;
mod members;
mod originals;

pub(crate) use events::Measured;

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::host;
use crate::marks;
use crate::messages::Message;
use crate::nccl::names::{DATATYPES, bytes_of_code};
use crate::observer::{self, Communicator, Door};
use crate::sampling;
use crate::table::{Table, mixed};
use crate::trail::{self, Entry, Function, Handle, Kind, Seat};

/// Numbers of communicators, by their address.
static COMMUNICATORS: Table = Table::new();
/// How often each was split.
static SPLITS: Table = Table::new();
/// Calls by communicator.
static COUNTS: Table = Table::new();

/// Whether events are what tells most of this NCCL's collectives.
fn is_wanted() -> bool {
    static IS_WANTED: OnceLock<bool> = OnceLock::new();
    let wanted = || {
        let version = gpu::nccl::mapped()?.version;
        Some(version.needs_events() && observer::begin(Door::Calls, None).is_some())
    };
    *IS_WANTED.get_or_init(|| wanted().unwrap_or(false))
}

/// A communicator was made; its number is the same on all its ranks.
fn made(communicator: *mut c_void, number: u64, size: Option<c_int>) {
    host::guarded(|| {
        if communicator.is_null() || !is_wanted() {
            return;
        }
        if let Some(known) = COMMUNICATORS.of(communicator.addr() as u64) {
            known.store(number, Ordering::Relaxed);
        }
        members::forget(communicator);
        let size = size.and_then(|size| u32::try_from(size).ok());
        if let Some(size) = size {
            observer::begin(Door::Calls, Some(Communicator { number, size, rank: None }));
        }
    });
}

fn number_of(communicator: *mut c_void) -> Option<u64> {
    Some(COMMUNICATORS.of(communicator.addr() as u64)?.load(Ordering::Relaxed))
}

/// The number of what a communicator is split into: its ranks split it together, and those of one colour stay together.
fn number_of_split(parent: *mut c_void, color: c_int) -> u64 {
    host::guarded(|| {
        let parent = number_of(parent)?;
        let times = SPLITS.of(parent)?.fetch_add(1, Ordering::Relaxed);
        Some(mixed(parent ^ mixed((times << 32) | u64::from(color.cast_unsigned()))))
    })
    .unwrap_or(0)
}

/// Does what there is to do before or behind a call, without ever failing its caller.
fn observed<T: Default>(work: impl FnOnce() -> T) -> T {
    host::guarded(|| sampling::timed(work))
}

/// Calls NCCL between events on each stream, and leaves entries of the calls on those that can be timed.
fn timed(by_stream: Vec<(*mut c_void, Vec<Numbered>)>, original: impl FnOnce() -> c_int) -> c_int {
    let begun: Vec<_> = observed(|| {
        let begin = |(stream, calls): (*mut c_void, Vec<Numbered>)| {
            let before = events::before(stream)?;
            let handles: Vec<Handle> = calls.into_iter().map(Numbered::announce).collect();
            Some((before, stream, handles))
        };
        by_stream.into_iter().filter_map(begin).collect()
    });
    let result = original();
    observed(|| begun.into_iter().for_each(|(before, stream, handles)| before.end(stream, handles)));
    result
}

/// What is called.
#[derive(Clone, Copy)]
enum What {
    Collective(Function),
    /// A send to, or a receive from, a rank of the communicator.
    Message {
        peer: c_int,
        is_sent: bool,
    },
}

/// A collective or a message, as it is called.
#[derive(Clone, Copy)]
struct Call {
    what: What,
    count: usize,
    datatype: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
}

impl Call {
    /// Runs it between two events.
    fn run(self, original: impl FnOnce() -> c_int) -> c_int {
        if !host::guarded(is_wanted) {
            return original();
        }
        if !group::is_open() {
            Message::begin_batch();
        }
        let Some(numbered) = observed(|| self.number()) else { return original() };
        if !numbered.is_observed() {
            let handle = observed(|| Some(numbered.announce()));
            let result = original();
            let issued = |handle| trail::append(Entry::Issued { handle, at: agent::clock::now() });
            observed(|| handle.map(issued));
            return result;
        }
        if group::is_open() {
            observed(|| group::add(numbered));
            return original();
        }
        timed(vec![(self.stream, vec![numbered])], original)
    }

    /// Counts it. Whoever counts only what can be timed is out of step with the other ranks once one of them has no event
    /// left.
    fn number(self) -> Option<Numbered> {
        let communicator = number_of(self.communicator)?;
        let number = match self.what {
            What::Collective(function) => Number::Collective(function, COUNTS.count(communicator, function)?),
            What::Message { peer, is_sent } => {
                let (own, peer) = (members::of(self.communicator, communicator)?, u32::try_from(peer).ok()?);
                let way = if is_sent { (own, peer) } else { (peer, own) };
                Number::Message(Message::next(communicator, way, is_sent)?)
            }
        };
        Some(Numbered { call: self, communicator, number })
    }
}

/// By the numbers that it has on all ranks.
#[derive(Clone, Copy)]
enum Number {
    Collective(Function, u64),
    Message(Message),
}

/// A call by its numbers.
#[derive(Clone, Copy)]
struct Numbered {
    call: Call,
    communicator: u64,
    number: Number,
}

impl Numbered {
    fn is_observed(&self) -> bool {
        match self.number {
            Number::Collective(function, seq) => {
                sampling::observes(Seat::FIRST, self.communicator, function, seq)
            }
            Number::Message(_) => sampling::observes_message(Seat::FIRST),
        }
    }

    /// Leaves an entry; its handle.
    fn announce(self) -> Handle {
        let Self { call: Call { count, datatype, .. }, communicator, number } = self;
        let handle = Handle::new(Kind::Collective, Seat::FIRST);
        // A negative type is none.
        let element = usize::try_from(datatype).map_or(1, bytes_of_code);
        let (bytes, channels, at) = (count as u64 * element, 1, agent::clock::now());
        trail::append(match number {
            Number::Collective(function, seq) => Entry::Enqueued {
                handle,
                communicator,
                function,
                seq,
                bytes,
                channels,
                begins: marks::begins(communicator),
                at,
            },
            Number::Message(message) => Entry::Message { handle, communicator, message, bytes, channels, at },
        });
        handle
    }
}

/// What of nccl.h is relied on here, by the names that it has there: to be compared with the header itself.
#[doc(hidden)]
#[must_use]
pub fn assumptions() -> Vec<(&'static str, u64)> {
    let numbers = DATATYPES.iter().enumerate().map(|(number, (name, _))| (*name, number as u64));
    let others = [
        ("ncclInternalError", exports::NO_NCCL as u64),
        ("sizeof(ncclUniqueId)", size_of::<gpu::nccl::UniqueId>() as u64),
    ];
    numbers.chain(others).collect()
}
