//! libnccl: communicators over the threads of this process.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};

use crate::machine::{self, Address, Part, Work, World};
use crate::out::{SUCCESS, give};
use crate::time;

const INVALID_ARGUMENT: c_int = 4;
const IN_PROGRESS: c_int = 7;
const FLOAT: c_int = 7;
const SUM: c_int = 0;

/// One rank's communicator; what `ncclComm_t` points to.
pub struct Communicator {
    world: u64,
    rank: usize,
    next_seq: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    bytes: [u8; 128],
}

/// 2.28.9, or what `FAKEGPU_NCCL_VERSION` says as one number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    let said = std::env::var("FAKEGPU_NCCL_VERSION").ok().and_then(|said| said.parse().ok());
    unsafe { give(version, said.unwrap_or(22_809)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&machine::with(machine::Machine::handle).to_le_bytes());
    unsafe { give(id, UniqueId { bytes }) }
}

/// Joins at once; the communicator is ready, as `ncclCommGetAsyncError` says, when all ranks have.
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
    machine::with(|machine| {
        let joined: &mut World = machine.worlds.entry(world).or_default();
        joined.size = size as usize;
        joined.joined += 1;
    });
    let new = Box::new(Communicator { world, rank: rank as usize, next_seq: 0 });
    unsafe { give(communicator, Box::into_raw(new)) };
    IN_PROGRESS
}

/// As above, and waits for all ranks.
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
    let answer = machine::with(|machine| {
        let world = machine.worlds.entry(*world).or_default();
        match world.errors.get(rank) {
            Some(&error) => error,
            None if world.joined < world.size => IN_PROGRESS,
            None => SUCCESS,
        }
    });
    unsafe { give(error, answer) }
}

/// Ends this rank's collectives that wait for somebody, and frees the communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(communicator: *mut Communicator) -> c_int {
    let communicator = unsafe { Box::from_raw(communicator) };
    machine::with(|machine| {
        machine.worlds.entry(communicator.world).or_default().aborted.insert(communicator.rank)
    });
    SUCCESS
}

/// There is nothing that would go on: what was begun is in streams.
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

/// Sums of floats.
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
    let communicator = unsafe { &mut *communicator };
    let (world, rank, seq) = (communicator.world, communicator.rank, communicator.next_seq);
    communicator.next_seq += 1;
    let (from, to, stream) = (from.addr() as u64, to.addr() as u64, stream.addr() as u64);
    let call = Call { world, rank, seq, from, to, len, stream };
    let is_grouped = GROUP.with_borrow_mut(|group| {
        group.calls.extend((group.depth > 0).then_some(call));
        group.depth > 0
    });
    if !is_grouped {
        call.enqueue();
    }
    SUCCESS
}

/// A collective that was called.
#[derive(Clone, Copy)]
struct Call {
    world: u64,
    rank: usize,
    seq: u64,
    from: u64,
    to: u64,
    len: usize,
    stream: u64,
}

impl Call {
    fn enqueue(self) {
        let Self { world, rank, seq, from, to, len, stream } = self;
        time::spend(time::CALL);
        machine::with(|machine| {
            let op = machine.enqueue(stream, Work::Collective { communicator: world, seq, rank });
            machine.add_part(world, seq, rank, Part { op, from: Address(from), to: Address(to), len });
        });
    }
}

#[derive(Default)]
struct Group {
    depth: usize,
    calls: Vec<Call>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_int {
    GROUP.with_borrow_mut(|group| group.depth += 1);
    SUCCESS
}

/// What was called in the outermost group is enqueued, one after the other.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> c_int {
    let calls = GROUP.with_borrow_mut(|group| {
        group.depth = group.depth.saturating_sub(1);
        if group.depth == 0 { std::mem::take(&mut group.calls) } else { Vec::new() }
    });
    calls.into_iter().for_each(Call::enqueue);
    SUCCESS
}

/// For tests: from now on a rank of this communicator is told of an error; without one, of the newest there is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakegpu_nccl_fail(communicator: *mut Communicator, rank: c_int, error: c_int) {
    let named = unsafe { communicator.as_ref() }.map(|communicator| communicator.world);
    machine::with(|machine| {
        let newest = machine.worlds.keys().next_back().copied();
        if let Some(world) = named.or(newest) {
            machine.worlds.entry(world).or_default().errors.insert(rank as usize, error);
        }
    });
}
