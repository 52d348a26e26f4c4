//! CUDA events around calls. The threads that call NCCL record them, and the observer thread reads them.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gpu::meter::{Context, Event, Meter, Reader};
use wire::clock::MonoNanos;

use crate::call_log::{self, Entry, Handle};

/// The largest number of events, enough for 8,192 collectives that the device has not finished.
const MAX_EVENTS: usize = 16_384;
/// The interval at which the clocks are paired. CUDA gives times as floats of milliseconds, which lose 61 ns within 1
/// s.
const ANCHOR_EVERY: Duration = Duration::from_secs(1);

/// The driver, and the context of the first collective. Collectives in other contexts, on other devices of the process,
/// are not observed.
static DEVICE: OnceLock<Option<(Meter, Context)>> = OnceLock::new();
static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), made: 0, measured: Vec::new() });

struct Pool {
    free: Vec<Event>,
    made: usize,
    /// Events that the device has not reached yet.
    measured: Vec<Pair>,
}

/// The events around one or more collectives.
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
        if pool.made == MAX_EVENTS {
            return None;
        }
        pool.made += 1;
    }
    // The driver is called without the lock, which other threads need.
    let made = meter.event();
    if made.is_none() {
        pool().made -= 1;
    }
    made
}

/// The recorded event before a collective, and the event for its end.
pub(super) struct Before {
    meter: Meter,
    begin: Event,
    end: Event,
    enqueued: MonoNanos,
}

/// Records an event before the next work on `stream`; `None` if that work cannot be timed.
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
            call_log::lose();
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
    /// Records the event after the work. The interval between the events is the time of all `handles`.
    pub(super) fn end(self, stream: *mut c_void, handles: Vec<Handle>) {
        // SAFETY: the stream is the one that holds the event before the work.
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

/// Reads the times of events that the device has reached; used by the observer thread.
#[derive(Default)]
pub(super) struct Reached {
    reader: Option<Reader>,
    anchored: Option<MonoNanos>,
}

impl Reached {
    /// Passes new times to `entry`. Pairs the clocks once per second, which takes some ten microseconds.
    pub(super) fn read(&mut self, entry: &mut dyn FnMut(Entry)) {
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
        // The events are read without the lock, which threads that call NCCL need.
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
