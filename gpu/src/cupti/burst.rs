//! Recording all that a process's devices do, for a moment.
//!
//! CUPTI has one place in a process for whoever wants activity records, and who comes last has it. So a burst asks first:
//! where someone else subscribes to CUPTI, or PyTorch's profiler is there and may start any time, it yields and says so.
//! CUPTI fills buffers that it asks for and hands back from threads of its own; in these two calls a buffer is moved and
//! nothing else. Records are read at the end of the burst.

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
use crate::library::{Absent, Library, Wanted};

/// Words of 8 bytes, so that buffers are aligned as CUPTI wants them: 1 MiB, some 3,700 kernels with
/// their launches' phases.
const BUFFER_WORDS: usize = 1 << 17;
/// Buffers that are made at most: a burst that needs more loses the rest, which CUPTI counts.
const MOST_BUFFERS: usize = 64;
/// `CUPTI_API_VERSION` of CUDA 12.9: before, CUPTI may crash when it is given no buffer.
const MAY_REFUSE: c_uint = 27;
/// How often both clocks are read.
const CLOCK_READINGS: usize = 32;
/// What is recorded.
const KINDS: [u32; 4] = [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET, kind::OVERHEAD];
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`
pub(super) const SUBSCRIBED: c_uint = 39;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`
pub(super) const FORCED: c_uint = 1;

/// PyTorch's profiler (Kineto) is inside this library.
const KINETO: Wanted = Wanted { name: "PyTorch", files: &["libtorch_cpu.so"], variable: None, packages: &[] };

/// Why there is no burst.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoBurst {
    /// There is no CUPTI that works.
    #[error(transparent)]
    Cupti(#[from] NoCupti),
    /// Another tool has it.
    #[error("another tool in this process is subscribed to CUPTI (a profiler, a debugger): it is left alone")]
    Taken,
    /// PyTorch's profiler may want it at any time, and two cannot have it.
    #[error("PyTorch is in this process: CUPTI is left to its profiler")]
    LeftToKineto,
    /// One burst at a time.
    #[error("a burst is under way already")]
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
    fn of(library: &Library) -> Result<Self, Absent> {
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

    /// Subscribing is the only way to see whether someone is subscribed.
    fn is_taken(&self) -> Result<bool, NoCupti> {
        let mut subscriber = ptr::null_mut();
        // SAFETY: a handle is written; the function that would be called is never called, since nothing is enabled
        // before it is unsubscribed again.
        let code =
            unsafe { (self.subscribe)(&raw mut subscriber, nothing as *const c_void, ptr::null_mut()) };
        if code == SUBSCRIBED {
            return Ok(true);
        }
        check("cuptiSubscribe", code)?;
        // SAFETY: it was just made.
        check("cuptiUnsubscribe", unsafe { (self.unsubscribe)(subscriber) })?;
        Ok(false)
    }
}

extern "C" fn nothing(_user: *mut c_void, _domain: u32, _callback: u32, _data: *const c_void) {}

type Buffer = Vec<u64>;

/// Buffers are where they are: free, with CUPTI, or filled.
#[derive(Default)]
struct Pool {
    free: Vec<Buffer>,
    /// By their address.
    given: HashMap<usize, Buffer>,
    /// With how many bytes of them are records.
    filled: Vec<(Buffer, usize)>,
}

impl Pool {
    /// Forgets what was recorded.
    fn discard(&mut self) {
        self.free.extend(self.filled.drain(..).map(|(buffer, _)| buffer));
    }
}

static POOL: Mutex<Option<Pool>> = Mutex::new(None);
static UNDER_WAY: AtomicBool = AtomicBool::new(false);
static MAY_GIVE_NONE: AtomicBool = AtomicBool::new(false);
/// Buffers that CUPTI handed back and that are somebody else's.
static FOREIGN: AtomicU64 = AtomicU64::new(0);

fn pool() -> MutexGuard<'static, Option<Pool>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    let mut pool = pool();
    let pool = pool.get_or_insert_default();
    let made = pool.free.len() + pool.given.len() + pool.filled.len();
    let may_make = made < MOST_BUFFERS || !MAY_GIVE_NONE.load(Ordering::Relaxed);
    let given = pool.free.pop().or_else(|| may_make.then(|| vec![0; BUFFER_WORDS]));
    let (address, bytes) = given.map_or((ptr::null_mut(), 0), |mut given| {
        let address = given.as_mut_ptr().cast::<u8>();
        let bytes = size_of_val(given.as_slice());
        pool.given.insert(address.addr(), given);
        (address, bytes)
    });
    // SAFETY: CUPTI passes places for these three. The buffer stays where it is until it comes back.
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

/// What a burst recorded.
#[derive(Debug, Default)]
pub struct Recorded {
    /// In no order.
    pub records: Vec<Record>,
    /// Records that had no room, as CUPTI counts them.
    pub dropped: u64,
    /// Buffers of another tool's: someone else registered meanwhile, and records are missing.
    pub foreign_buffers: u64,
    /// Whether CUPTI's clock is still the host's wall clock; else times cannot be placed.
    pub is_realtime: bool,
}

impl Recorded {
    /// The phases that kernels were launched in, by the number of the call; none of those that no thread marked.
    #[must_use]
    pub fn phases(&self) -> HashMap<u32, SpanKind> {
        phases::by_correlation(&self.records)
    }
}

/// A burst under way. Ended without [`Self::finish`], its records are thrown away.
pub struct Burst {
    library: Library,
    functions: Functions,
    enabled: Vec<u32>,
    /// Records come to us: from when our functions are registered until what came is read.
    is_ours: bool,
}

impl Burst {
    /// Begins to record every kernel, copy and fill of this process's devices, by the CUPTI that the process has, the one
    /// at `path` (or that `PACELINE_CUPTI` names), the loader's or Python's.
    ///
    /// # Errors
    /// When there is no CUPTI, someone else needs it, or it refuses.
    pub fn start(path: Option<&Path>) -> Result<Self, NoBurst> {
        if Library::mapped(&KINETO).is_some() {
            return Err(NoBurst::LeftToKineto);
        }
        let library = Library::open_or(&WANTED, path)?;
        let functions = Functions::of(&library)?;
        if UNDER_WAY.swap(true, Ordering::AcqRel) {
            return Err(NoBurst::UnderWay);
        }
        // From here on dropping it ends it.
        let mut burst = Self { library, functions, enabled: Vec::new(), is_ours: false };
        burst.begin()?;
        Ok(burst)
    }

    fn begin(&mut self) -> Result<(), NoBurst> {
        if self.functions.is_taken()? {
            return Err(NoBurst::Taken);
        }
        let mut version = 0;
        // SAFETY: one integer is written.
        check("cuptiGetVersion", unsafe { (self.functions.version)(&raw mut version) })?;
        MAY_GIVE_NONE.store(version >= MAY_REFUSE, Ordering::Relaxed);
        FOREIGN.store(0, Ordering::Relaxed);
        // SAFETY: both functions are there as long as the process, and do what CUPTI asks of them.
        check("cuptiActivityRegisterCallbacks", unsafe { (self.functions.register)(requested, completed) })?;
        self.is_ours = true;
        for kind in KINDS {
            // SAFETY: no pointer is passed.
            check("cuptiActivityEnable", unsafe { (self.functions.enable)(kind) })?;
            self.enabled.push(kind);
        }
        if let Some(kind) = phases::begin(&self.library) {
            // SAFETY: no pointer is passed.
            let code = unsafe { (self.functions.enable)(kind) };
            // Kernels without a phase are worth having too.
            self.enabled.extend((code == 0).then_some(kind));
        }
        Ok(())
    }

    /// CUPTI's clock less the host's, `now`, in nanoseconds: as the tightest of some readings says, since a host that
    /// does something else in the middle of one is off by milliseconds.
    ///
    /// # Errors
    /// When CUPTI refuses.
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

    /// Ends it and reads what was recorded. Work that the devices have not done yet is not in it: wait for them first.
    ///
    /// # Errors
    /// When CUPTI refuses.
    pub fn finish(mut self) -> Result<Recorded, NoBurst> {
        self.disable()?;
        // SAFETY: no pointer is passed. No lock is held that the calls it makes would take.
        check("cuptiActivityFlushAll", unsafe { (self.functions.flush)(FORCED) })?;
        let mut dropped = 0;
        // SAFETY: one integer is written; no context means those without one.
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
        // SAFETY: CUPTI has filled that many bytes; it alone knows how long each record is, and answers other than 0
        // when there are no more.
        while unsafe { (self.functions.next)(buffer.as_mut_ptr().cast(), valid, &raw mut at) } == 0 {
            // SAFETY: a record lies there. CUPTI shares a kernel's name among its records and says nothing of how long it
            // keeps it; others read names as late, after modules may be gone (Kineto, at the end of its trace).
            records.push(unsafe { Record::read(at) });
        }
    }

    fn disable(&mut self) -> Result<(), NoCupti> {
        phases::end();
        let disable = self.functions.disable;
        // SAFETY: no pointer is passed.
        let ended =
            self.enabled.drain(..).map(|kind| check("cuptiActivityDisable", unsafe { disable(kind) }));
        // All of them, also where one is refused.
        ended.fold(Ok(()), Result::and)
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        // Else what would be flushed is another tool's.
        if self.is_ours {
            // Not finished. Nobody is left to be told of a failure; what stays behind then is bounded by the pool.
            let _outcome = self.disable();
            // SAFETY: no pointer is passed, and no lock is held that the calls it makes would take.
            let _code = unsafe { (self.functions.flush)(FORCED) };
            pool().get_or_insert_default().discard();
        }
        UNDER_WAY.store(false, Ordering::Release);
    }
}
