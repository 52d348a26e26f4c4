//! libnccl: communicators between threads of this process.

mod split;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use crate::machine::{self, Address, Function, Part, Work, World};
use crate::out::{SUCCESS, give};
use crate::time;

const INVALID_ARGUMENT: c_int = 4;
const IN_PROGRESS: c_int = 7;
const FLOAT: c_int = 7;
const SUM: c_int = 0;
/// The longest time that giving up a communicator may take, in real time. NCCL would wait forever.
const LONGEST_ABORT: Duration = Duration::from_secs(30);

/// One rank's communicator, the target of `ncclComm_t`.
pub struct Communicator {
    world: u64,
    rank: usize,
    next_seq: u64,
    next_split: u64,
    /// The number of messages so far, by sender and receiver.
    messages: BTreeMap<[usize; 2], u64>,
}

impl Communicator {
    fn new(world: u64, rank: usize) -> *mut Self {
        Box::into_raw(Box::new(Self { world, rank, next_seq: 0, next_split: 0, messages: BTreeMap::new() }))
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    bytes: [u8; 128],
}

/// Returns 2.28.9, or the version in `FAKEGPU_NCCL_VERSION`, as one number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    let said = std::env::var("FAKEGPU_NCCL_VERSION").ok().and_then(|said| said.parse().ok());
    unsafe { give(version, said.unwrap_or(22_809)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&machine::change(machine::Machine::handle).to_le_bytes());
    unsafe { give(id, UniqueId { bytes }) }
}

/// Joins at once. The communicator is ready, according to `ncclCommGetAsyncError`, once all ranks have joined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    communicator: *mut *mut Communicator,
    size: c_int,
    id: UniqueId,
    rank: c_int,
    _config: *mut c_void,
) -> c_int {
    if size < 1 || !(0..size).contains(&rank) {
        return INVALID_ARGUMENT;
    }
    let mut number = [0; 8];
    number.copy_from_slice(&id.bytes[..8]);
    let world = u64::from_le_bytes(number);
    machine::change(|machine| {
        let joined: &mut World = machine.worlds.entry(world).or_default();
        joined.size = size as usize;
        joined.joined += 1;
    });
    unsafe { give(communicator, Communicator::new(world, rank as usize)) };
    IN_PROGRESS
}

/// Joins and waits for all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(
    communicator: *mut *mut Communicator,
    size: c_int,
    id: UniqueId,
    rank: c_int,
) -> c_int {
    match unsafe { ncclCommInitRankConfig(communicator, size, id, rank, std::ptr::null_mut()) } {
        IN_PROGRESS => {
            let world = unsafe { (**communicator).world };
            machine::wait(|machine| {
                let world = machine.worlds.entry(world).or_default();
                (world.joined >= world.size).then_some(SUCCESS)
            })
        }
        refused => refused,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(communicator: *mut Communicator, error: *mut c_int) -> c_int {
    let Communicator { world, rank, .. } = unsafe { &*communicator };
    let answer = machine::change(|machine| {
        let world = machine.worlds.entry(*world).or_default();
        match world.errors.get(rank) {
            Some(&error) => error,
            None if world.is_in_progress(*rank) => IN_PROGRESS,
            None => SUCCESS,
        }
    });
    unsafe { give(error, answer) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommUserRank(communicator: *mut Communicator, rank: *mut c_int) -> c_int {
    unsafe { give(rank, (*communicator).rank as c_int) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCount(communicator: *mut Communicator, count: *mut c_int) -> c_int {
    let world = unsafe { (*communicator).world };
    let size = machine::change(|machine| machine.worlds.entry(world).or_default().size);
    unsafe { give(count, size as c_int) }
}

/// Ends this rank's collectives that wait for other ranks, and frees the communicator once all its kernels are done.
/// That includes kernels that wait in a stream after other work: like NCCL, this function waits for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(communicator: *mut Communicator) -> c_int {
    let Communicator { world, rank, .. } = *unsafe { Box::from_raw(communicator) };
    machine::change(|machine| machine.worlds.entry(world).or_default().aborted.insert(rank));
    let ended = machine::wait_at_most(LONGEST_ABORT, |machine| machine.is_idle(world, rank).then_some(()));
    ended.expect("the kernels of this communicator wait for those of another one; NCCL would not return");
    SUCCESS
}

/// Does nothing: outstanding work is in streams.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommFinalize(_communicator: *mut Communicator) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(communicator: *mut Communicator) -> c_int {
    drop(unsafe { Box::from_raw(communicator) });
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        1 => c"unhandled cuda error",
        6 => c"remote process exited or there was a network error",
        _ => c"an error",
    };
    text.as_ptr()
}

/// Sums floats over all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    len: usize,
    datatype: c_int,
    operation: c_int,
    communicator: *mut Communicator,
    stream: *mut c_void,
) -> c_int {
    if (datatype, operation) != (FLOAT, SUM) {
        return INVALID_ARGUMENT;
    }
    unsafe { submit(Function::AllReduce, from, to, len, communicator, stream) }
}

/// Sums floats over all ranks. Each rank gets its `len` of the sums.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduceScatter(
    from: *const c_void,
    to: *mut c_void,
    len: usize,
    datatype: c_int,
    operation: c_int,
    communicator: *mut Communicator,
    stream: *mut c_void,
) -> c_int {
    if (datatype, operation) != (FLOAT, SUM) {
        return INVALID_ARGUMENT;
    }
    unsafe { submit(Function::ReduceScatter, from, to, len, communicator, stream) }
}

/// Gathers `len` floats from each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllGather(
    from: *const c_void,
    to: *mut c_void,
    len: usize,
    datatype: c_int,
    communicator: *mut Communicator,
    stream: *mut c_void,
) -> c_int {
    if datatype != FLOAT {
        return INVALID_ARGUMENT;
    }
    unsafe { submit(Function::AllGather, from, to, len, communicator, stream) }
}

unsafe fn submit(
    function: Function,
    from: *const c_void,
    to: *mut c_void,
    len: usize,
    communicator: *mut Communicator,
    stream: *mut c_void,
) -> c_int {
    let communicator = unsafe { &mut *communicator };
    let (world, rank, seq) = (communicator.world, communicator.rank, communicator.next_seq);
    communicator.next_seq += 1;
    let (from, to, stream) = (from.addr() as u64, to.addr() as u64, stream.addr() as u64);
    called(Call { world, rank, seq, function, from, to, len, stream })
}

/// Sends floats to another rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclSend(
    from: *const c_void,
    len: usize,
    datatype: c_int,
    peer: c_int,
    communicator: *mut Communicator,
    stream: *mut c_void,
) -> c_int {
    unsafe { message([from.addr() as u64, 0], (len, datatype), peer, communicator, stream) }
}

/// Receives floats from another rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRecv(
    to: *mut c_void,
    len: usize,
    datatype: c_int,
    peer: c_int,
    communicator: *mut Communicator,
    stream: *mut c_void,
) -> c_int {
    unsafe { message([0, to.addr() as u64], (len, datatype), peer, communicator, stream) }
}

/// Submits a message, which is a collective of two ranks. The first one sends.
unsafe fn message(
    [from, to]: [u64; 2],
    (len, datatype): (usize, c_int),
    peer: c_int,
    communicator: *mut Communicator,
    stream: *mut c_void,
) -> c_int {
    let communicator = unsafe { &mut *communicator };
    if datatype != FLOAT || peer < 0 || peer as usize == communicator.rank {
        return INVALID_ARGUMENT;
    }
    let (own, peer, is_sent) = (communicator.rank, peer as usize, from != 0);
    let way = if is_sent { [own, peer] } else { [peer, own] };
    let count = communicator.messages.entry(way).or_default();
    let seq = *count;
    *count += 1;
    let world = machine::change(|machine| machine.way(communicator.world, way));
    let (rank, stream) = (usize::from(!is_sent), stream.addr() as u64);
    called(Call { world, rank, seq, function: Function::Send, from, to, len, stream })
}

fn called(call: Call) -> c_int {
    let is_grouped = GROUP.with_borrow_mut(|group| {
        group.calls.extend((group.depth > 0).then_some(call));
        group.depth > 0
    });
    if !is_grouped {
        call.enqueue();
    }
    SUCCESS
}

/// A call of a collective.
#[derive(Clone, Copy)]
struct Call {
    world: u64,
    rank: usize,
    seq: u64,
    function: Function,
    from: u64,
    to: u64,
    len: usize,
    stream: u64,
}

impl Call {
    fn enqueue(self) {
        let Self { world, rank, seq, function, from, to, len, stream } = self;
        time::spend(time::CALL);
        machine::change(|machine| {
            let op = machine.enqueue(stream, Work::Collective { communicator: world, seq, rank });
            let part = Part { op, function, from: Address(from), to: Address(to), len };
            machine.add_part(world, seq, rank, part);
        });
    }
}

#[derive(Default)]
struct CallGroup {
    depth: usize,
    calls: Vec<Call>,
}

thread_local! {
    static GROUP: RefCell<CallGroup> = RefCell::default();
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_int {
    GROUP.with_borrow_mut(|group| group.depth += 1);
    SUCCESS
}

/// Enqueues the calls of the outermost group, one after the other.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> c_int {
    let calls = GROUP.with_borrow_mut(|group| {
        group.depth = group.depth.saturating_sub(1);
        if group.depth == 0 { std::mem::take(&mut group.calls) } else { Vec::new() }
    });
    calls.into_iter().for_each(Call::enqueue);
    SUCCESS
}

/// Sets the error that a rank of this communicator gets; with a null communicator, of the newest one. For tests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakegpu_nccl_fail(communicator: *mut Communicator, rank: c_int, error: c_int) {
    let named = unsafe { communicator.as_ref() }.map(|communicator| communicator.world);
    machine::change(|machine| {
        let newest = machine.worlds.keys().next_back().copied();
        if let Some(world) = named.or(newest) {
            machine.worlds.entry(world).or_default().errors.insert(rank as usize, error);
        }
    });
}

/// Sets the error that a rank of an older communicator gets. `back` counts from the newest, 0. For tests.
#[unsafe(no_mangle)]
pub extern "C" fn fakegpu_nccl_fail_older(back: c_int, rank: c_int, error: c_int) {
    machine::change(|machine| {
        if let Some(world) = machine.worlds.values_mut().rev().nth(back.max(0) as usize) {
            world.errors.insert(rank as usize, error);
        }
    });
}
