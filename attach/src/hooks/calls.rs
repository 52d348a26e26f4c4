//! The hook of interposed calls: the library's functions stand in front of NCCL's own, where `LD_PRELOAD` names it.
//!
//! This hook serves NCCL releases whose profiler interface is missing (before 2.23), reports no kernels (before 2.26)
//! or is faulty. A job that is linked with NCCL, as PyTorch is, calls the functions of [`exports`]. They record one
//! CUDA event before the collective and one after it on its stream ([`events`]), and call NCCL's function. A job that
//! looks NCCL's functions up in the loader itself, as JAX does, is not seen here.
//!
//! A call inside a group runs when the group ends, and is given the time of the whole group. A collective on a
//! nonblocking communicator may run after its call, and so after the event that follows it.

mod exports;
mod group;
mod members;
mod originals;

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::call_log::{self, Entry, Function, Handle, Kind, LocalRank};
use crate::hooks::events::{self, Work};
use crate::hooks::nccl::names::{DATATYPES, bytes_of_code};
use crate::host;
use crate::marks::{self, Begin};
use crate::message::Message;
use crate::observer::{self, Communicator, Hook};
use crate::sampling;
use crate::table::{Table, mixed};

/// Communicator numbers by address.
static COMMUNICATORS: Table = Table::new();
/// How often each communicator was split.
static SPLITS: Table = Table::new();
/// Counts of calls by communicator and function.
static COUNTS: Table = Table::new();

/// Returns whether this NCCL needs events, because no better hook reports its collectives, and the process is observed.
fn is_wanted() -> bool {
    static IS_WANTED: OnceLock<bool> = OnceLock::new();
    let wanted = || {
        let version = gpu::nccl::mapped()?.version;
        let is_wanted = version.needs_events() && observer::begin(Hook::Calls, None).is_some();
        if is_wanted {
            events::read_by_observer();
        }
        Some(is_wanted)
    };
    *IS_WANTED.get_or_init(|| wanted().unwrap_or(false))
}

/// Registers a new communicator. `number` is the same on all its ranks.
fn made(communicator: *mut c_void, number: u64, size: Option<c_int>) {
    host::guarded(|| {
        if communicator.is_null() || !is_wanted() {
            return;
        }
        if let Some(known) = COMMUNICATORS.slot(communicator.addr() as u64) {
            known.store(number, Ordering::Relaxed);
        }
        members::forget(communicator);
        let size = size.and_then(|size| u32::try_from(size).ok());
        if let Some(size) = size {
            observer::begin(Hook::Calls, Some(Communicator { number, size, rank: None }));
        }
    });
}

fn number_of(communicator: *mut c_void) -> Option<u64> {
    Some(COMMUNICATORS.slot(communicator.addr() as u64)?.load(Ordering::Relaxed))
}

/// Returns the number of the communicator that a split creates. All ranks of the parent split it together, and the
/// ranks of one color form the new communicator.
fn number_of_split(parent: *mut c_void, color: c_int) -> u64 {
    host::guarded(|| {
        let parent = number_of(parent)?;
        let times = SPLITS.slot(parent)?.fetch_add(1, Ordering::Relaxed);
        Some(mixed(parent ^ mixed((times << 32) | u64::from(color.cast_unsigned()))))
    })
    .unwrap_or(0)
}

/// Runs the work before or after a call. The work never fails the caller.
fn observed<T: Default>(work: impl FnOnce() -> T) -> T {
    host::guarded(|| sampling::timed(work))
}

/// Calls NCCL between events on each stream, and logs the calls on the streams that can be timed.
fn timed(by_stream: Vec<(*mut c_void, Vec<Numbered>)>, original: impl FnOnce() -> c_int) -> c_int {
    let begun: Vec<_> = observed(|| {
        let begun_work = |(stream, calls): (*mut c_void, Vec<Numbered>)| {
            let begin = events::record_begin(stream)?;
            let handles: Vec<Handle> = calls.into_iter().map(Numbered::announce).collect();
            Some((begin, stream, handles))
        };
        by_stream.into_iter().filter_map(begun_work).collect()
    });
    let result = original();
    observed(|| {
        begun.into_iter().for_each(|(begin, stream, handles)| {
            begin.end(stream, Work::Collectives(handles));
        });
    });
    result
}

/// The operation of a call.
#[derive(Clone, Copy)]
enum What {
    Collective(Function),
    /// A send to, or a receive from, a rank of the communicator.
    Message {
        peer: c_int,
        is_sent: bool,
    },
}

/// A call of a collective or a message.
#[derive(Clone, Copy)]
struct Call {
    what: What,
    count: usize,
    datatype: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
}

impl Call {
    /// Runs the call between two events.
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
            let issued = |handle| call_log::append(Entry::Issued { handle, at: agent::clock::now() });
            observed(|| handle.map(issued));
            return result;
        }
        if group::is_open() {
            observed(|| group::add(numbered));
            return original();
        }
        timed(vec![(self.stream, vec![numbered])], original)
    }

    /// Counts the call. Every call must be counted, even one that cannot be timed; otherwise this rank's indices
    /// diverge from those of the other ranks once it runs out of events.
    fn number(self) -> Option<Numbered> {
        let communicator = number_of(self.communicator)?;
        let number = match self.what {
            What::Collective(function) => Number::Collective(function, COUNTS.count(communicator, function)?),
            What::Message { peer, is_sent } => {
                let (own, peer) =
                    (members::rank_in(self.communicator, communicator)?, u32::try_from(peer).ok()?);
                let link = if is_sent { (own, peer) } else { (peer, own) };
                Number::Message(Message::next(communicator, link, is_sent)?)
            }
        };
        let begins = match number {
            Number::Collective(..) => marks::begins(communicator),
            Number::Message(_) => None,
        };
        Some(Numbered { call: self, communicator, number, begins })
    }
}

/// The identity of an operation, the same on all ranks that take part.
#[derive(Clone, Copy)]
enum Number {
    Collective(Function, u64),
    Message(Message),
}

/// A call and its identity.
#[derive(Clone, Copy)]
struct Numbered {
    call: Call,
    communicator: u64,
    number: Number,
    /// See [`Entry::Enqueued`].
    begins: Option<Begin>,
}

impl Numbered {
    fn is_observed(&self) -> bool {
        match self.number {
            Number::Collective(function, seq) => {
                sampling::observes(LocalRank::FIRST, self.communicator, function, seq, self.begins)
            }
            Number::Message(_) => sampling::observes_message(LocalRank::FIRST),
        }
    }

    /// Appends an entry for the call, and returns its handle.
    fn announce(self) -> Handle {
        let Self { call: Call { count, datatype, .. }, communicator, number, begins } = self;
        let handle = Handle::new(Kind::Collective, LocalRank::FIRST);
        // A negative data type is invalid: count bytes.
        let element = usize::try_from(datatype).map_or(1, bytes_of_code);
        let (bytes, channels, at) = (count as u64 * element, 1, agent::clock::now());
        call_log::append(match number {
            Number::Collective(function, seq) => {
                Entry::Enqueued { handle, communicator, function, seq, bytes, channels, begins, at }
            }
            Number::Message(message) => Entry::Message { handle, communicator, message, bytes, channels, at },
        });
        handle
    }
}

/// Returns the constants of nccl.h that this hook relies on, by their names there, for comparison with the header.
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
