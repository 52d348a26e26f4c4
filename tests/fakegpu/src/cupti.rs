//! libcupti: the work of all streams as activity records of CUDA 13.0.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};

use crate::machine::{self, Completed, Done, Machine, OpId, Requested, What};
use crate::out::{SUCCESS, give};
use crate::time;

const MAX_LIMIT_REACHED: c_int = 12;
const MULTIPLE_SUBSCRIBERS: c_int = 39;
const KERNEL: u32 = 10;
const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;
const DRIVER: u32 = 4;
const EXTERNAL_CORRELATION: u32 = 39;
const QUEUE_EMPTY: c_int = 18;
/// The value of `CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel`.
const LAUNCH_KERNEL: u32 = 307;

thread_local! {
    /// The external correlations that the thread has pushed: kind and id, newest last.
    static DOING: RefCell<Vec<(u32, u64)>> = const { RefCell::new(Vec::new()) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetVersion(version: *mut c_uint) -> c_int {
    unsafe { give(version, 130_000) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetTimestamp(place: *mut u64) -> c_int {
    unsafe { give(place, time::now() as u64) }
}

/// Sets whether another tool is subscribed. For tests.
#[unsafe(no_mangle)]
pub extern "C" fn fakegpu_cupti_take(taken: c_int) {
    machine::change(|machine| machine.cupti.subscribed = taken != 0);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe(
    subscriber: *mut *mut c_void,
    _callback: *const c_void,
    _user: *mut c_void,
) -> c_int {
    let was = machine::change(|machine| std::mem::replace(&mut machine.cupti.subscribed, true));
    if was {
        return MULTIPLE_SUBSCRIBERS;
    }
    unsafe { give(subscriber, std::ptr::without_provenance_mut(1)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(_subscriber: *mut c_void) -> c_int {
    machine::change(|machine| machine.cupti.subscribed = false);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterCallbacks(requested: Requested, completed: Completed) -> c_int {
    machine::change(|machine| machine.cupti.callbacks = Some((requested, completed)));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(kind: u32) -> c_int {
    machine::change(|machine| machine.cupti.kinds.insert(kind));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(kind: u32) -> c_int {
    machine::change(|machine| machine.cupti.kinds.remove(&kind));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) -> c_int {
    DOING.with_borrow_mut(|doing| doing.push((kind, id)));
    SUCCESS
}

/// Pops the newest external correlation of a kind.
///
/// # Safety
/// `last` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityPopExternalCorrelationId(kind: u32, last: *mut u64) -> c_int {
    let popped = DOING.with_borrow_mut(|doing| {
        let at = doing.iter().rposition(|(other, _)| *other == kind)?;
        Some(doing.remove(at).1)
    });
    match popped {
        None => QUEUE_EMPTY,
        Some(_) if last.is_null() => SUCCESS,
        Some(id) => unsafe { give(last, id) },
    }
}

/// Records that the calling thread launched a kernel.
pub(crate) fn launched(machine: &mut Machine, op: OpId) {
    let cupti = &mut machine.cupti;
    if cupti.kinds.contains(&EXTERNAL_CORRELATION) && cupti.kinds.contains(&DRIVER) {
        let doing = DOING.with_borrow(|doing| doing.last().copied());
        cupti.launches.extend(doing.map(|(_, id)| (machine::correlation(op), id)));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> c_int {
    unsafe { give(dropped, 0) }
}

/// Delivers all records, in as many buffers as necessary.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(_flags: c_uint) -> c_int {
    let (callbacks, launches, done) = machine::change(|machine| {
        let cupti = &mut machine.cupti;
        (cupti.callbacks, std::mem::take(&mut cupti.launches), std::mem::take(&mut cupti.done))
    });
    let Some((requested, completed)) = callbacks else { return SUCCESS };
    let mut records = launches.iter().flat_map(call).chain(done.iter().map(record)).peekable();
    while records.peek().is_some() {
        let (mut buffer, mut size, mut most) = (std::ptr::null_mut(), 0, 0);
        unsafe { requested(&raw mut buffer, &raw mut size, &raw mut most) };
        let mut filled = 0;
        while let Some(record) = records.next_if(|record| filled + record.len() <= size) {
            unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), buffer.add(filled), record.len()) };
            filled += record.len();
        }
        unsafe { completed(std::ptr::null_mut(), 0, buffer, size, filled) };
        if filled == 0 {
            return MAX_LIMIT_REACHED;
        }
    }
    SUCCESS
}

/// Returns the next record of a buffer.
///
/// # Safety
/// As in CUPTI: `record` must hold null or a record of the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut u8,
) -> c_int {
    let previous = unsafe { record.read() };
    let next = if previous.is_null() {
        buffer
    } else {
        unsafe { previous.add(size_of_kind(previous.cast::<u32>().read())) }
    };
    if next.addr() >= buffer.addr() + valid {
        return MAX_LIMIT_REACHED;
    }
    unsafe { give(record, next) }
}

/// Returns the size of a record in CUDA 13.0.
fn size_of_kind(kind: u32) -> usize {
    match kind {
        KERNEL => 216,
        MEMCPY => 96,
        DRIVER => 40,
        EXTERNAL_CORRELATION => 24,
        _ => 88,
    }
}

/// Returns the external correlation of a launch, followed by the record of the call.
fn call(&(correlation, id): &(u32, u64)) -> [Vec<u8>; 2] {
    let record_with = |kind: u32, fields: &[(usize, &[u8])]| {
        let mut bytes = vec![0; size_of_kind(kind)];
        let kind = kind.to_le_bytes();
        for (at, field) in fields.iter().copied().chain([(0, &kind[..])]) {
            bytes[at..at + field.len()].copy_from_slice(field);
        }
        bytes
    };
    let correlation = correlation.to_le_bytes();
    let who = 5_u32.to_le_bytes();
    [
        record_with(EXTERNAL_CORRELATION, &[(4, &who), (8, &id.to_le_bytes()), (16, &correlation)]),
        record_with(DRIVER, &[(4, &LAUNCH_KERNEL.to_le_bytes()), (32, &correlation)]),
    ]
}

/// Returns the record of an activity, with fields at the offsets of cupti_activity.h.
fn record(done: &Done) -> Vec<u8> {
    let (kind, times, place, correlation) = match done.what {
        What::Kernel(_) => (KERNEL, 16, 40, 92),
        What::Copy(_) => (MEMCPY, 16, 32, 44),
        What::Fill(_) => (MEMSET, 16, 32, 44),
    };
    let mut bytes = vec![0; size_of_kind(kind)];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &kind.to_le_bytes());
    put(times, &time::unix_nanos(done.start).to_le_bytes());
    put(times + 8, &time::unix_nanos(done.end).to_le_bytes());
    put(correlation, &done.correlation.to_le_bytes());
    put(place + 8, &(done.stream as u32).to_le_bytes());
    match done.what {
        What::Kernel(name) => put(104, &name.as_ptr().addr().to_le_bytes()),
        What::Copy(len) | What::Fill(len) => put(8, &len.to_le_bytes()),
    }
    bytes
}
