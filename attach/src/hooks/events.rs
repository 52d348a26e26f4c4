//! CUDA events around work on the device: calls of NCCL, and phases of PyTorch. The threads that enqueue the work record
//! them, and the observer thread reads them.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use gpu::meter::{Context, Event, Meter, Reader};
use wire::clock::MonoNanos;

use crate::call_log::{self, Entry, Handle, Phase};
use crate::observer;

/// The largest number of events, enough for 8,192 collectives that the device has not finished.
const MAX_EVENTS: usize = 16_384;
/// The interval at which the clocks are paired. CUDA gives times as floats of milliseconds, which lose 61 ns within 1
/// s.
const ANCHOR_EVERY: Duration = Duration::from_secs(1);

/// The driver, and the context of the first work. Work in other contexts, on other devices of the process, is not observed.
static DEVICE: OnceLock<(Meter, Context)> = OnceLock::new();
static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), made: 0, measured: Vec::new() });

struct Pool {
    free: Vec<Event>,
    made: usize,
    /// Events that the device has not reached yet.
    measured: Vec<Pair>,
}

/// The events around some work.
struct Pair {
    begin: Event,
    end: Event,
    work: Work,
    enqueued: MonoNanos,
}

/// What the device does between two events.
pub(super) enum Work {
    /// One or more collectives, each of which takes the whole time.
    Collectives(Vec<Handle>),
    /// A phase of the training.
    Phase(Phase),
}

impl Work {
    fn entries(
        self,
        enqueued: MonoNanos,
        (begin, end): (MonoNanos, MonoNanos),
        entry: &mut dyn FnMut(Entry),
    ) {
        match self {
            Self::Collectives(handles) => {
                handles.into_iter().for_each(|handle| entry(Entry::Timed { handle, begin, end }));
            }
            Self::Phase(phase) => {
                entry(Entry::Phase { phase, enqueued: Some(enqueued), begin, end, used: 0 });
            }
        }
    }
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

/// The recorded event before some work, and the event for its end.
pub(super) struct RecordedBegin {
    begin: Event,
    end: Event,
    enqueued: MonoNanos,
}

/// Returns the driver and the context of the first work. A thread without a context cannot do the first.
fn device() -> Option<(Meter, Context)> {
    if let Some(device) = DEVICE.get() {
        return Some(*device);
    }
    let meter = Meter::mapped()?;
    let context = meter.context()?;
    Some(*DEVICE.get_or_init(|| (meter, context)))
}

/// Records an event before the next work on `stream`; `None` if that work cannot be timed.
pub(super) fn record_begin(stream: *mut c_void) -> Option<RecordedBegin> {
    let (meter, context) = device()?;
    meter.run_in_context(context, || {
        // SAFETY: the job passes its stream, and the context is that of the calling thread.
        if unsafe { meter.is_capturing(stream) } {
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
        let recorded = RecordedBegin { begin, end, enqueued: agent::clock::now() };
        // SAFETY: as above.
        if unsafe { meter.record(begin, stream) } {
            return Some(recorded);
        }
        recorded.forget();
        None
    })?
}

impl RecordedBegin {
    /// Records the event after the work.
    pub(super) fn end(self, stream: *mut c_void, work: Work) {
        let is_recorded = device().and_then(|(meter, context)| {
            // SAFETY: the job passes its stream, and the context is that of the calling thread.
            meter.run_in_context(context, || unsafe {
                !meter.is_capturing(stream) && meter.record(self.end, stream)
            })
        });
        if is_recorded == Some(true) {
            let Self { begin, end, enqueued } = self;
            pool().measured.push(Pair { begin, end, work, enqueued });
        } else {
            self.forget();
        }
    }

    /// Returns the events: the end of the work is not observed.
    pub(super) fn forget(self) {
        pool().free.extend([self.begin, self.end]);
    }
}

/// Lets the observer thread read the events from now on.
pub(super) fn read_by_observer() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut reached = Reached::default();
        observer::poll(Box::new(move |entry| reached.read(entry)));
    });
}

/// Reads the times of events that the device has reached; used by the observer thread.
#[derive(Default)]
struct Reached {
    reader: Option<Reader>,
    anchored: Option<MonoNanos>,
}

impl Reached {
    /// Passes new times to `entry`. Pairs the clocks once per second, which takes some ten microseconds.
    fn read(&mut self, entry: &mut dyn FnMut(Entry)) {
        let Some((meter, context)) = DEVICE.get() else { return };
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
        // The events are read without the lock, which threads that enqueue work need.
        let measured = std::mem::take(&mut pool().measured);
        let (mut open, mut free) = (Vec::new(), Vec::new());
        for pair in measured {
            if reader.is_past(pair.end) == Some(false) {
                open.push(pair);
                continue;
            }
            let time = |event| reader.host_time(event, pair.enqueued);
            if let (Some(begin), Some(end)) = (time(pair.begin), time(pair.end)) {
                pair.work.entries(pair.enqueued, (begin, end), entry);
            }
            free.extend([pair.begin, pair.end]);
        }
        let mut pool = pool();
        open.append(&mut pool.measured);
        pool.measured = open;
        pool.free.append(&mut free);
    }
}
