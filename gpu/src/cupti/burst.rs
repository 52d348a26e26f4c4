//! Bursts: short recordings of all work on a process's devices.
//!
//! CUPTI delivers activity records to only one tool per process, the one that registered last. A burst therefore checks
//! first. If another tool is subscribed to CUPTI, or PyTorch is loaded and its profiler may start at any time, the
//! burst refuses and reports the reason.
//!
//! CUPTI requests buffers and returns them filled, both from its own threads. The two callbacks only move a buffer. The
//! records are read at the end of the burst.

use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::clock::MonoNanos;
use wire::event::SpanKind;

use super::phases;
use super::records::{Record, kind};
use super::{NoCupti, WANTED, check, clock_is_realtime, timestamp};
use crate::library::{Absent, Library, LibraryNames};

/// The size of a buffer in words of 8 bytes, which give it the alignment that CUPTI requires. The size is 1 MiB, enough
/// for about 3,700 kernels with the phases of their launches.
const BUFFER_WORDS: usize = 1 << 17;
/// The largest number of buffers. A burst that needs more loses the remaining records, which CUPTI counts.
const MAX_BUFFERS: usize = 64;
/// `CUPTI_API_VERSION` of CUDA 12.9. Earlier releases may crash if a request for a buffer is refused.
const MAY_REFUSE: c_uint = 27;
/// The number of times that both clocks are read.
const CLOCK_READINGS: usize = 32;
/// The kinds of records that a burst enables.
const KINDS: [u32; 4] = [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET, kind::OVERHEAD];
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`
pub(super) const SUBSCRIBED: c_uint = 39;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`
pub(super) const FORCED: c_uint = 1;

/// The library that contains PyTorch's profiler, Kineto.
const KINETO: LibraryNames =
    LibraryNames { name: "PyTorch", files: &["libtorch_cpu.so"], variable: None, packages: &[] };

/// The reason why a burst was not recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoBurst {
    /// There is no usable CUPTI.
    #[error(transparent)]
    Cupti(#[from] NoCupti),
    /// Another tool is subscribed to CUPTI.
    #[error("another tool in this process, such as a profiler or debugger, is already subscribed to CUPTI")]
    Taken,
    /// PyTorch is loaded. Its profiler may need CUPTI at any time, and CUPTI serves only one tool.
    #[error("PyTorch is loaded in this process, and CUPTI is left to its profiler")]
    LeftToKineto,
    /// Another burst is being recorded.
    #[error("another burst is being recorded")]
    UnderWay,
}

impl From<Absent> for NoBurst {
    fn from(absent: Absent) -> Self {
        Self::Cupti(NoCupti::Library { absent })
    }
}

type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

struct Functions {
    version: unsafe extern "C" fn(*mut c_uint) -> c_uint,
    subscribe: unsafe extern "C" fn(*mut *mut c_void, *const c_void, *mut c_void) -> c_uint,
    unsubscribe: unsafe extern "C" fn(*mut c_void) -> c_uint,
    register: unsafe extern "C" fn(Requested, Completed) -> c_uint,
    enable: unsafe extern "C" fn(u32) -> c_uint,
    disable: unsafe extern "C" fn(u32) -> c_uint,
    flush: unsafe extern "C" fn(c_uint) -> c_uint,
    next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> c_uint,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> c_uint,
}

impl Functions {
    fn new(library: &Library) -> Result<Self, Absent> {
        // SAFETY: the types are those of cupti_activity.h and cupti_callbacks.h, the same from CUDA 12.1 to 13.4.
        unsafe {
            Ok(Self {
                version: library.function("cuptiGetVersion")?,
                subscribe: library.function("cuptiSubscribe")?,
                unsubscribe: library.function("cuptiUnsubscribe")?,
                register: library.function("cuptiActivityRegisterCallbacks")?,
                enable: library.function("cuptiActivityEnable")?,
                disable: library.function("cuptiActivityDisable")?,
                flush: library.function("cuptiActivityFlushAll")?,
                next: library.function("cuptiActivityGetNextRecord")?,
                dropped: library.function("cuptiActivityGetNumDroppedRecords")?,
            })
        }
    }

    /// Returns true if another tool is subscribed. The only way to find out is to subscribe.
    fn is_taken(&self) -> Result<bool, NoCupti> {
        let mut subscriber = ptr::null_mut();
        // SAFETY: the call writes a handle to a valid place. The callback has CUPTI's type and is never called, since
        // nothing is enabled before the subscription ends.
        let code =
            unsafe { (self.subscribe)(&raw mut subscriber, nothing as *const c_void, ptr::null_mut()) };
        if code == SUBSCRIBED {
            return Ok(true);
        }
        check("cuptiSubscribe", code)?;
        // SAFETY: the subscription was just made.
        check("cuptiUnsubscribe", unsafe { (self.unsubscribe)(subscriber) })?;
        Ok(false)
    }
}

extern "C" fn nothing(_user: *mut c_void, _domain: u32, _callback: u32, _data: *const c_void) {}

type Buffer = Vec<u64>;

/// All buffers, by their state.
#[derive(Default)]
struct Pool {
    free: Vec<Buffer>,
    /// The buffers that CUPTI has, by address.
    given: HashMap<usize, Buffer>,
    /// The filled buffers, each with the number of bytes that are records.
    filled: Vec<(Buffer, usize)>,
}

impl Pool {
    /// Discards all records.
    fn discard(&mut self) {
        self.free.extend(self.filled.drain(..).map(|(buffer, _)| buffer));
    }
}

static POOL: Mutex<Option<Pool>> = Mutex::new(None);
static UNDER_WAY: AtomicBool = AtomicBool::new(false);
static MAY_GIVE_NONE: AtomicBool = AtomicBool::new(false);
/// The number of buffers of other tools that CUPTI returned to this module.
static FOREIGN: AtomicU64 = AtomicU64::new(0);

fn pool() -> MutexGuard<'static, Option<Pool>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    let mut pool = pool();
    let pool = pool.get_or_insert_default();
    let made = pool.free.len() + pool.given.len() + pool.filled.len();
    let may_make = made < MAX_BUFFERS || !MAY_GIVE_NONE.load(Ordering::Relaxed);
    let given = pool.free.pop().or_else(|| may_make.then(|| vec![0; BUFFER_WORDS]));
    let (address, bytes) = given.map_or((ptr::null_mut(), 0), |mut given| {
        let address = given.as_mut_ptr().cast::<u8>();
        let bytes = size_of_val(given.as_slice());
        pool.given.insert(address.addr(), given);
        (address, bytes)
    });
    // SAFETY: CUPTI passes valid places for these three values. The buffer stays allocated until CUPTI returns it.
    unsafe {
        buffer.write(address);
        size.write(bytes);
        most_records.write(0);
    }
}

unsafe extern "C" fn completed(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    let mut pool = pool();
    let pool = pool.get_or_insert_default();
    match pool.given.remove(&buffer.addr()) {
        Some(ours) => pool.filled.push((ours, valid)),
        None => drop(FOREIGN.fetch_add(1, Ordering::Relaxed)),
    }
}

/// The records of a burst.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The records, in no particular order.
    pub records: Vec<Record>,
    /// The number of records for which there was no room, as counted by CUPTI.
    pub dropped: u64,
    /// The number of buffers of other tools. If it is not 0, another tool registered meanwhile, and records are
    /// missing.
    pub foreign_buffers: u64,
    /// Whether CUPTI's clock is still the host's wall clock. Otherwise the times cannot be converted.
    pub is_realtime: bool,
}

impl Recorded {
    /// Returns the phases in which kernels were launched, by the correlation id of the launch. Launches outside marked
    /// phases are missing.
    #[must_use]
    pub fn phases(&self) -> HashMap<u32, SpanKind> {
        phases::phases_by_correlation(&self.records)
    }
}

/// A burst in progress. Dropping it without [`Self::finish`] discards its records.
pub struct Burst {
    library: Library,
    functions: Functions,
    enabled: Vec<u32>,
    /// Whether CUPTI delivers records to this burst: true from the registration of the callbacks until the records are
    /// read.
    is_ours: bool,
}

impl Burst {
    /// Begins to record every kernel, copy and fill of this process's devices.
    ///
    /// The search order for CUPTI is: the library that the process has loaded, the one at `path` (or in
    /// `PACELINE_CUPTI`), the one on the loader's path, and the one in Python's packages.
    ///
    /// # Errors
    /// Returns an error if there is no usable CUPTI, if another tool needs it, or if it refuses.
    pub fn start(path: Option<&Path>) -> Result<Self, NoBurst> {
        if Library::mapped(&KINETO).is_some() {
            return Err(NoBurst::LeftToKineto);
        }
        let library = Library::open_or(&WANTED, path)?;
        let functions = Functions::new(&library)?;
        if UNDER_WAY.swap(true, Ordering::AcqRel) {
            return Err(NoBurst::UnderWay);
        }
        // From here on, the drop ends the burst.
        let mut burst = Self { library, functions, enabled: Vec::new(), is_ours: false };
        burst.begin()?;
        Ok(burst)
    }

    fn begin(&mut self) -> Result<(), NoBurst> {
        if self.functions.is_taken()? {
            return Err(NoBurst::Taken);
        }
        let mut version = 0;
        // SAFETY: the call writes one integer to a valid place.
        check("cuptiGetVersion", unsafe { (self.functions.version)(&raw mut version) })?;
        MAY_GIVE_NONE.store(version >= MAY_REFUSE, Ordering::Relaxed);
        FOREIGN.store(0, Ordering::Relaxed);
        // SAFETY: both functions are static, have the types that CUPTI declares, and follow its protocol.
        check("cuptiActivityRegisterCallbacks", unsafe { (self.functions.register)(requested, completed) })?;
        self.is_ours = true;
        for kind in KINDS {
            // SAFETY: no pointer is passed.
            check("cuptiActivityEnable", unsafe { (self.functions.enable)(kind) })?;
            self.enabled.push(kind);
        }
        for &kind in phases::begin(&self.library) {
            // SAFETY: no pointer is passed.
            let code = unsafe { (self.functions.enable)(kind) };
            // If a kind is refused, the burst records kernels without phases.
            self.enabled.extend((code == 0).then_some(kind));
        }
        Ok(())
    }

    /// Returns CUPTI's clock minus the host's clock `now`, in nanoseconds. Of several readings it uses the one with the
    /// narrowest bracket, since an interruption during a reading can shift the result by milliseconds.
    ///
    /// # Errors
    /// Returns an error if CUPTI refuses.
    pub fn ahead(&self, now: fn() -> MonoNanos) -> Result<i64, NoBurst> {
        let mut tightest = (i64::MAX, 0);
        for _ in 0..CLOCK_READINGS {
            let before = now().0;
            let time = timestamp(&self.library)?.cast_signed();
            let width = now().0 - before;
            tightest = tightest.min((width, time - before - width / 2));
        }
        Ok(tightest.1)
    }

    /// Ends the burst and reads its records. Unfinished work of the devices is not included; to include it, wait for
    /// the devices first.
    ///
    /// # Errors
    /// Returns an error if CUPTI refuses.
    pub fn finish(mut self) -> Result<Recorded, NoBurst> {
        self.disable()?;
        // SAFETY: no pointer is passed. This thread holds no lock that the callbacks take.
        check("cuptiActivityFlushAll", unsafe { (self.functions.flush)(FORCED) })?;
        let mut dropped = 0;
        // SAFETY: the call writes one integer to a valid place. A null context selects the records without a context.
        check("cuptiActivityGetNumDroppedRecords", unsafe {
            (self.functions.dropped)(ptr::null_mut(), 0, &raw mut dropped)
        })?;
        let filled = std::mem::take(&mut pool().get_or_insert_default().filled);
        let mut records = Vec::new();
        let mut free = Vec::with_capacity(filled.len());
        for (mut buffer, valid) in filled {
            self.read(&mut buffer, valid, &mut records);
            free.push(buffer);
        }
        pool().get_or_insert_default().free.append(&mut free);
        self.is_ours = false;
        Ok(Recorded {
            records,
            dropped: dropped as u64,
            foreign_buffers: FOREIGN.load(Ordering::Relaxed),
            is_realtime: clock_is_realtime(&self.library)?,
        })
    }

    fn read(&self, buffer: &mut Buffer, valid: usize, records: &mut Vec<Record>) {
        let mut at = ptr::null_mut();
        // SAFETY: CUPTI has filled `valid` bytes of the buffer. It knows the length of each record and returns another
        // code than 0 after the last one.
        while unsafe { (self.functions.next)(buffer.as_mut_ptr().cast(), valid, &raw mut at) } == 0 {
            // SAFETY: `at` points to a record. Records of a kernel share its name. CUPTI does not document how long the
            // name is valid, but Kineto reads names equally late, at the end of its trace, when modules may be
            // unloaded.
            let record = unsafe { Record::read(at) };
            // Calls are recorded only for their phases.
            if !matches!(record, Record::Other { kind: kind::DRIVER | kind::RUNTIME }) {
                records.push(record);
            }
        }
    }

    fn disable(&mut self) -> Result<(), NoCupti> {
        phases::end();
        let disable = self.functions.disable;
        // SAFETY: no pointer is passed.
        let ended =
            self.enabled.drain(..).map(|kind| check("cuptiActivityDisable", unsafe { disable(kind) }));
        // Disable all kinds, even if CUPTI refuses one.
        ended.fold(Ok(()), Result::and)
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        // If the callbacks are not registered, a flush would deliver the records of another tool.
        if self.is_ours {
            // The burst was not finished. A failure here cannot be reported; the pool bounds the memory that it leaves.
            let _outcome = self.disable();
            // SAFETY: no pointer is passed, and this thread holds no lock that the callbacks take.
            let _code = unsafe { (self.functions.flush)(FORCED) };
            pool().get_or_insert_default().discard();
        }
        UNDER_WAY.store(false, Ordering::Release);
    }
}
