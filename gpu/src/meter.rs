//! Timed events on streams that are somebody else's, and when the device came past them on the host's clock.
//!
//! By the driver's plain functions, in the context that the caller has already: nothing is initialised. Whoever enqueues
//! only records events; another thread asks later which of them the device has come past, and never waits.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use wire::clock::MonoNanos;

use crate::driver;
use crate::library::{Absent, Library};

/// `CUDA_SUCCESS`, `CUDA_ERROR_NOT_READY`
const SUCCESS: c_int = 0;
const NOT_READY: c_int = 600;
/// `CU_STREAM_NON_BLOCKING`: no implied order with the default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: asking from this thread must not spoil what another one captures.
const RELAXED: c_int = 2;
/// Readings of which the tightest counts.
const READINGS: usize = 4;
/// An idle stream comes past an event within some ten microseconds; a busy device may take longer to look.
const PATIENCE_NANOS: i64 = 2_000_000;
/// Anchors that are kept: events are placed by the newest that is older than they.
const MOST_ANCHORS: usize = 4;

pub(crate) fn assumptions() -> [(&'static str, u64); 3] {
    [
        ("CUDA_ERROR_NOT_READY", NOT_READY as u64),
        ("CU_STREAM_NON_BLOCKING", u64::from(NON_BLOCKING)),
        ("CU_STREAM_CAPTURE_MODE_RELAXED", RELAXED as u64),
    ]
}

type Handle = *mut c_void;

/// An event, by CUDA's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(usize);

/// A context of this process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context(usize);

/// The driver's functions, as cuda.h declares them since 10.1.
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
    /// By the driver that this process has; `None` where it has none.
    #[must_use]
    pub fn mapped() -> Option<Self> {
        Self::of(&driver::mapped()?).ok()
    }

    fn of(library: &Library) -> Result<Self, Absent> {
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

    /// The calling thread's context.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: one handle is written.
        let code = unsafe { (self.current)(&raw mut context) };
        (code == SUCCESS && !context.is_null()).then(|| Context(context.expose_provenance()))
    }

    /// A new event, in the calling thread's context.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        let mut event = ptr::null_mut();
        // SAFETY: one handle is written.
        let code = unsafe { (self.create)(&raw mut event, 0) };
        (code == SUCCESS).then(|| Event(event.expose_provenance()))
    }

    /// Puts an event behind all that a stream has. False where the driver refuses.
    ///
    /// # Safety
    /// `stream` must be a stream of the event's context.
    #[must_use]
    pub unsafe fn record(&self, event: Event, stream: *mut c_void) -> bool {
        // SAFETY: the caller vouches for the stream; events are never destroyed.
        unsafe { (self.record)(ptr::with_exposed_provenance_mut(event.0), stream) == SUCCESS }
    }

    /// Whether what is enqueued on a stream is being captured for a graph, and does not run now.
    ///
    /// # Safety
    /// `stream` must be a stream of the calling thread's context.
    #[must_use]
    pub unsafe fn is_capturing(&self, stream: *mut c_void) -> bool {
        let mut status = 0;
        // SAFETY: the caller vouches for the stream; one integer is written.
        let code = unsafe { (self.capturing)(stream, &raw mut status) };
        code != SUCCESS || status != 0
    }
}

/// An event whose time on the host is known.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    event: Event,
    host: MonoNanos,
}

/// Reads events of one context, on a thread of its own.
pub struct Reader {
    meter: Meter,
    stream: usize,
    anchors: Vec<Anchor>,
    /// Events that are no anchor's.
    spare: Vec<Event>,
    now: fn() -> MonoNanos,
}

impl Reader {
    /// Makes `context` the calling thread's. `now` is the host's clock.
    #[must_use]
    pub fn new(meter: Meter, context: Context, now: fn() -> MonoNanos) -> Option<Self> {
        let (mut stream, mut mode) = (ptr::null_mut(), RELAXED);
        // SAFETY: the context lives as long as the process uses CUDA; afterwards calls fail. Two values are written.
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

    /// Pairs the device's clock with the host's: an event on a stream that has nothing else to do, between two readings.
    /// It takes some ten microseconds. False where the driver refuses, or the device does not come past it soon: one that
    /// hangs must not hold this thread, and with it the end of the process.
    pub fn anchor(&mut self) -> bool {
        let mut tightest: Option<(i64, Anchor)> = None;
        for _ in 0..READINGS {
            let Some(event) = self.spare_event() else { break };
            let before = (self.now)();
            if !self.passes(event, before) {
                // It may be recorded again although the device has not come to it.
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

    /// Records an event on the own stream, and whether the device comes past it in time.
    fn passes(&self, event: Event, from: MonoNanos) -> bool {
        // SAFETY: the stream is ours.
        if !unsafe { self.meter.record(event, ptr::with_exposed_provenance_mut(self.stream)) } {
            return false;
        }
        loop {
            match self.is_past(event) {
                Some(true) => return true,
                Some(false) if (self.now)() - from < PATIENCE_NANOS => std::hint::spin_loop(),
                _ => return false,
            }
        }
    }

    /// An event for an anchor: one that is not in use, the oldest anchor's, or a new one.
    fn spare_event(&mut self) -> Option<Event> {
        let old =
            |anchors: &mut Vec<Anchor>| (anchors.len() >= MOST_ANCHORS).then(|| anchors.remove(0).event);
        self.spare.pop().or_else(|| old(&mut self.anchors)).or_else(|| self.meter.event())
    }

    /// Whether the device has come past an event; `None` where the driver refuses.
    #[must_use]
    pub fn is_past(&self, event: Event) -> Option<bool> {
        // SAFETY: an event that is never destroyed.
        match unsafe { (self.meter.query)(ptr::with_exposed_provenance_mut(event.0)) } {
            SUCCESS => Some(true),
            NOT_READY => Some(false),
            _ => None,
        }
    }

    /// When the device came past an event that was recorded after `enqueued`; `None` before the first anchor, or where
    /// the driver refuses. Half a microsecond is all that the driver resolves (cuda.h).
    #[must_use]
    pub fn host_time(&self, event: Event, enqueued: MonoNanos) -> Option<MonoNanos> {
        let older = self.anchors.iter().rev().find(|anchor| anchor.host <= enqueued);
        let anchor = older.or(self.anchors.first())?;
        let mut millis = 0.0_f32;
        // SAFETY: both are events that are never destroyed; one float is written.
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
