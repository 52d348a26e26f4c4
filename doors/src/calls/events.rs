//! Events around calls. They are recorded on the threads that call NCCL, and read by the observing thread.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gpu::meter::{Context, Event, Meter, Reader};
use wire::clock::MonoNanos;

use crate::trail::{self, Entry, Handle};

/// Events in all: 8,192 collectives that the device has not done yet.
const MOST_EVENTS: usize = 16_384;
/// How often the clocks are paired: floats of milliseconds lose 61 ns in a second.
const ANCHOR_EVERY: Duration = Duration::from_secs(1);

/// The driver, and the context of the first collective. Collectives of other contexts, on other devices of one process,
/// are not observed.
static DEVICE: OnceLock<Option<(Meter, Context)>> = OnceLock::new();
static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), made: 0, measured: Vec::new() });

struct Pool {
    free: Vec<Event>,
    made: usize,
    /// What the device has not come past yet.
    measured: Vec<Pair>,
}

/// Events around one or more collectives.
struct Pair {
    begin: Event,
    end: Event,
    handles: Vec<Handle>,
    enqueued: MonoNanos,
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn event(meter: &Meter) -> Option<Event> {
    {
        let mut pool = pool();
        if let Some(free) = pool.free.pop() {
            return Some(free);
        }
        if pool.made == MOST_EVENTS {
            return None;
        }
        pool.made += 1;
    }
    // Asked without the lock, which other threads need.
    let made = meter.event();
    if made.is_none() {
        pool().made -= 1;
    }
    made
}

/// The event before a collective.
pub(super) struct Before {
    meter: Meter,
    begin: Event,
    end: Event,
    enqueued: MonoNanos,
}

/// Records the event before what is enqueued next on `stream`; `None` where that cannot be timed.
pub(super) fn before(stream: *mut c_void) -> Option<Before> {
    let find = || {
        let meter = Meter::mapped()?;
        Some((meter, meter.context()?))
    };
    let (meter, context) = (*DEVICE.get_or_init(find))?;
    // SAFETY: the stream is the one that NCCL is given in this call, and the context is that of the calling thread.
    let is_usable = || meter.context() == Some(context) && unsafe { !meter.is_capturing(stream) };
    if !is_usable() {
        return None;
    }
    let (begin, end) = match (event(&meter), event(&meter)) {
        (Some(begin), Some(end)) => (begin, end),
        (left, right) => {
            pool().free.extend(left.into_iter().chain(right));
            trail::lose();
            return None;
        }
    };
    let enqueued = agent::clock::now();
    // SAFETY: as above.
    if unsafe { meter.record(begin, stream) } {
        return Some(Before { meter, begin, end, enqueued });
    }
    pool().free.extend([begin, end]);
    None
}

impl Before {
    /// Records the event behind it: what lies between is the time of all `handles`.
    pub(super) fn end(self, stream: *mut c_void, handles: Vec<Handle>) {
        // SAFETY: the stream is the one that the event before is on.
        let is_recorded = unsafe { self.meter.record(self.end, stream) };
        let mut pool = pool();
        if is_recorded {
            let Self { begin, end, enqueued, .. } = self;
            pool.measured.push(Pair { begin, end, handles, enqueued });
        } else {
            pool.free.extend([self.begin, self.end]);
        }
    }
}

/// What the device has come past, read by the observing thread.
#[derive(Default)]
pub(crate) struct Measured {
    reader: Option<Reader>,
    anchored: Option<MonoNanos>,
}

impl Measured {
    /// Hands out what has become known; pairs the clocks once a second, which takes some ten microseconds.
    pub(crate) fn take(&mut self, mut entry: impl FnMut(Entry)) {
        let Some(Some((meter, context))) = DEVICE.get() else { return };
        let now = agent::clock::now();
        if self.reader.is_none() {
            self.reader = Reader::new(*meter, *context, agent::clock::now);
        }
        let Some(reader) = &mut self.reader else { return };
        let is_due = |at: MonoNanos| now - at >= ANCHOR_EVERY.as_nanos() as i64;
        if self.anchored.is_none_or(is_due) {
            reader.anchor();
            self.anchored = Some(now);
        }
        // Asked without the lock, which those who call NCCL need.
        let measured = std::mem::take(&mut pool().measured);
        let (mut open, mut free) = (Vec::new(), Vec::new());
        for pair in measured {
            if reader.is_past(pair.end) == Some(false) {
                open.push(pair);
                continue;
            }
            let time = |event| reader.host_time(event, pair.enqueued);
            if let (Some(begin), Some(end)) = (time(pair.begin), time(pair.end)) {
                pair.handles.iter().for_each(|&handle| entry(Entry::Timed { handle, begin, end }));
            }
            free.extend([pair.begin, pair.end]);
        }
        let mut pool = pool();
        open.append(&mut pool.measured);
        pool.measured = open;
        pool.free.append(&mut free);
    }
}
