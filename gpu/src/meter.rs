//! Timed events on the job's own streams, with their times on the host's clock.
//!
//! The module calls the driver's functions in the caller's existing context and initializes nothing. The thread that
//! enqueues work only records events. Another thread later checks which events the device has passed, without blocking
//! on them.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use wire::clock::MonoNanos;

use crate::driver;
use crate::library::{Absent, Library};

/// `CUDA_SUCCESS`
const SUCCESS: c_int = 0;
/// `CUDA_ERROR_NOT_READY`
const NOT_READY: c_int = 600;
/// `CU_STREAM_NON_BLOCKING`: no implied order with the default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: queries of this thread must not invalidate a capture on another thread.
const RELAXED: c_int = 2;
/// The number of readings for an anchor, of which the one with the narrowest bracket is used.
const READINGS: usize = 4;
/// The longest wait for an event of an anchor, in nanoseconds. An idle stream passes an event within some ten
/// microseconds; a busy device may take longer.
const PATIENCE_NANOS: i64 = 2_000_000;
/// The largest number of stored anchors. An event's time is relative to the newest anchor that is older than the event.
const MAX_ANCHORS: usize = 4;

/// Returns the values of cuda.h that this module relies on, by name. A test compares them with the header.
#[doc(hidden)]
#[must_use]
pub fn assumptions() -> Vec<(&'static str, u64)> {
    vec![
        ("CUDA_ERROR_NOT_READY", NOT_READY as u64),
        ("CU_STREAM_NON_BLOCKING", u64::from(NON_BLOCKING)),
        ("CU_STREAM_CAPTURE_MODE_RELAXED", RELAXED as u64),
    ]
}

type Handle = *mut c_void;

/// The handle of a CUDA event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(usize);

/// The handle of a CUDA context of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context(usize);

/// The driver's functions, as cuda.h has declared them since CUDA 10.1.
#[derive(Clone, Copy)]
pub struct Meter {
    current: unsafe extern "C" fn(*mut Handle) -> c_int,
    make_current: unsafe extern "C" fn(Handle) -> c_int,
    create: unsafe extern "C" fn(*mut Handle, c_uint) -> c_int,
    record: unsafe extern "C" fn(Handle, Handle) -> c_int,
    query: unsafe extern "C" fn(Handle) -> c_int,
    elapsed: unsafe extern "C" fn(*mut f32, Handle, Handle) -> c_int,
    create_stream: unsafe extern "C" fn(*mut Handle, c_uint) -> c_int,
    capturing: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    capture_mode: unsafe extern "C" fn(*mut c_int) -> c_int,
}

impl Meter {
    /// Uses the driver that this process has loaded. Returns `None` if it has loaded none.
    #[must_use]
    pub fn mapped() -> Option<Self> {
        Self::new(&driver::mapped()?).ok()
    }

    fn new(library: &Library) -> Result<Self, Absent> {
        // SAFETY: the types are those of cuda.h.
        unsafe {
            Ok(Self {
                current: library.function("cuCtxGetCurrent")?,
                make_current: library.function("cuCtxSetCurrent")?,
                create: library.function("cuEventCreate")?,
                record: library.function("cuEventRecord")?,
                query: library.function("cuEventQuery")?,
                elapsed: library.function("cuEventElapsedTime")?,
                create_stream: library.function("cuStreamCreate")?,
                capturing: library.function("cuStreamIsCapturing")?,
                capture_mode: library.function("cuThreadExchangeStreamCaptureMode")?,
            })
        }
    }

    /// Returns the calling thread's context.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: the call writes one handle to a valid place.
        let code = unsafe { (self.current)(&raw mut context) };
        (code == SUCCESS && !context.is_null()).then(|| Context(context.expose_provenance()))
    }

    /// Runs `work` in `context`. A thread that has no context gets it for this time. Returns `None` if the thread is in
    /// another context, or if the driver refuses.
    pub fn run_in_context<T>(&self, context: Context, work: impl FnOnce() -> T) -> Option<T> {
        match self.context() {
            Some(current) => (current == context).then(work),
            None => {
                // SAFETY: the context lives as long as the process uses CUDA, and the call fails afterwards.
                let code = unsafe { (self.make_current)(ptr::with_exposed_provenance_mut(context.0)) };
                let done = (code == SUCCESS).then(work);
                // SAFETY: no context is what the thread had.
                let _code = unsafe { (self.make_current)(ptr::null_mut()) };
                done
            }
        }
    }

    /// Creates an event in the calling thread's context.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        let mut event = ptr::null_mut();
        // SAFETY: the call writes one handle to a valid place.
        let code = unsafe { (self.create)(&raw mut event, 0) };
        (code == SUCCESS).then(|| Event(event.expose_provenance()))
    }

    /// Records an event after all work that a stream has. Returns false if the driver refuses.
    ///
    /// # Safety
    /// `stream` must be a stream of the event's context.
    #[must_use]
    pub unsafe fn record(&self, event: Event, stream: *mut c_void) -> bool {
        // SAFETY: the caller guarantees the stream, and events are never destroyed.
        unsafe { (self.record)(ptr::with_exposed_provenance_mut(event.0), stream) == SUCCESS }
    }

    /// Returns true if work that is enqueued on a stream is captured for a graph and does not run now.
    ///
    /// # Safety
    /// `stream` must be a stream of the calling thread's context.
    #[must_use]
    pub unsafe fn is_capturing(&self, stream: *mut c_void) -> bool {
        let mut status = 0;
        // SAFETY: the caller guarantees the stream. The call writes one integer to a valid place.
        let code = unsafe { (self.capturing)(stream, &raw mut status) };
        code != SUCCESS || status != 0
    }
}

/// An event with a known time on the host's clock.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    event: Event,
    host: MonoNanos,
}

/// Reads the events of a context, on a thread of its own.
pub struct Reader {
    meter: Meter,
    stream: usize,
    anchors: Vec<Anchor>,
    /// The events that belong to no anchor.
    spare: Vec<Event>,
    now: fn() -> MonoNanos,
}

impl Reader {
    /// Creates a reader and makes `context` the calling thread's context. `now` is the host's clock.
    #[must_use]
    pub fn new(meter: Meter, context: Context, now: fn() -> MonoNanos) -> Option<Self> {
        let (mut stream, mut mode) = (ptr::null_mut(), RELAXED);
        // SAFETY: the context lives as long as the process uses CUDA, and calls fail afterwards. The calls write two
        // values to valid places.
        let codes = unsafe {
            [
                (meter.make_current)(ptr::with_exposed_provenance_mut(context.0)),
                (meter.capture_mode)(&raw mut mode),
                (meter.create_stream)(&raw mut stream, NON_BLOCKING),
            ]
        };
        let reader =
            Self { meter, stream: stream.expose_provenance(), anchors: Vec::new(), spare: Vec::new(), now };
        (codes == [SUCCESS; 3]).then_some(reader)
    }

    /// Pairs the device's clock with the host's, by an event on an idle stream between two readings of the host's
    /// clock. Each reading takes some ten microseconds. Returns false if the driver refuses, or if the device does not
    /// pass the event soon: a hanging device must not block this thread, and with it the end of the process.
    pub fn anchor(&mut self) -> bool {
        let mut tightest: Option<(i64, Anchor)> = None;
        for _ in 0..READINGS {
            let Some(event) = self.spare_event() else { break };
            let before = (self.now)();
            if !self.passes(event, before) {
                // The event may be recorded again although the device has not reached it.
                self.spare.push(event);
                break;
            }
            let width = (self.now)() - before;
            let anchor = Anchor { event, host: MonoNanos(before.0 + width / 2) };
            match &mut tightest {
                Some((known, best)) if width < *known => {
                    self.spare.push(best.event);
                    (*known, *best) = (width, anchor);
                }
                Some(_) => self.spare.push(event),
                None => tightest = Some((width, anchor)),
            }
        }
        let is_anchored = tightest.is_some();
        self.anchors.extend(tightest.map(|(_, anchor)| anchor));
        is_anchored
    }

    /// Records an event on the reader's stream. Returns true if the device passes it in time.
    fn passes(&self, event: Event, begin: MonoNanos) -> bool {
        // SAFETY: the reader created the stream and never destroys it.
        if !unsafe { self.meter.record(event, ptr::with_exposed_provenance_mut(self.stream)) } {
            return false;
        }
        loop {
            match self.is_past(event) {
                Some(true) => return true,
                Some(false) if (self.now)() - begin < PATIENCE_NANOS => std::hint::spin_loop(),
                _ => return false,
            }
        }
    }

    /// Returns an event for an anchor: a spare one, that of the oldest anchor, or a new one.
    fn spare_event(&mut self) -> Option<Event> {
        let old = |anchors: &mut Vec<Anchor>| (anchors.len() >= MAX_ANCHORS).then(|| anchors.remove(0).event);
        self.spare.pop().or_else(|| old(&mut self.anchors)).or_else(|| self.meter.event())
    }

    /// Returns whether the device has passed an event, or `None` if the driver refuses.
    #[must_use]
    pub fn is_past(&self, event: Event) -> Option<bool> {
        // SAFETY: events are never destroyed.
        match unsafe { (self.meter.query)(ptr::with_exposed_provenance_mut(event.0)) } {
            SUCCESS => Some(true),
            NOT_READY => Some(false),
            _ => None,
        }
    }

    /// Returns the time at which the device passed an event that was recorded after `enqueued`, on the host's clock.
    /// The driver's resolution is half a microsecond (cuda.h). Returns `None` before the first anchor, or if the driver
    /// refuses.
    #[must_use]
    pub fn host_time(&self, event: Event, enqueued: MonoNanos) -> Option<MonoNanos> {
        let older = self.anchors.iter().rev().find(|anchor| anchor.host <= enqueued);
        let anchor = older.or(self.anchors.first())?;
        let mut millis = 0.0_f32;
        // SAFETY: events are never destroyed. The call writes one float to a valid place.
        let code = unsafe {
            (self.meter.elapsed)(
                &raw mut millis,
                ptr::with_exposed_provenance_mut(anchor.event.0),
                ptr::with_exposed_provenance_mut(event.0),
            )
        };
        (code == SUCCESS).then(|| MonoNanos(anchor.host.0 + (f64::from(millis) * 1e6) as i64))
    }
}
