//! NCCL's collectives, without blocking: the calls that create, use and give up a communicator return at once.
//!
//! cudarc has bindings to NCCL too. But they do not find the library that pip installs, have no non-blocking
//! communicators, and convert codes to enums even if the codes are newer than the bindings.

mod split;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{ManuallyDrop, offset_of};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaStream, CudaViewMut, DevicePtrMut as _, SyncOnDrop};

use super::{NoNccl, UNIQUE_ID_BYTES, UniqueId, WANTED};
use crate::device::Device;
use crate::library::{Absent, Library};
use split::{CommSplit, NO_COLOR};
pub use split::{NoSplit, Split};

/// `ncclConfig_t` of NCCL 2.17. Later releases append fields and distinguish the layouts by `size`.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    fn that_does_not_block() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: CONFIG_MAGIC,
            version: CONFIG_VERSION,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
        }
    }
}

const CONFIG_MAGIC: u32 = 0xcafe_beef;
/// The release whose layout [`Config`] has, as a version code (`NCCL_VERSION`).
const CONFIG_VERSION: u32 = 21_700;
/// `NCCL_CONFIG_UNDEF_INT`
const UNDEFINED: c_int = c_int::MIN;

/// A C expression that is 1 if a function has these arguments and returns a code.
macro_rules! has_type {
    ($function:literal $arguments:literal) => {
        concat!("__builtin_types_compatible_p(__typeof__(", $function, "), ncclResult_t ", $arguments, ")")
    };
}

/// Returns the values of nccl.h that this file relies on, by name. A test compares them with the header.
#[doc(hidden)]
#[must_use]
pub fn assumptions() -> Vec<(&'static str, u64)> {
    vec![
        ("NCCL_UNIQUE_ID_BYTES", UNIQUE_ID_BYTES as u64),
        ("offsetof(ncclConfig_t, size)", offset_of!(Config, size) as u64),
        ("offsetof(ncclConfig_t, magic)", offset_of!(Config, magic) as u64),
        ("offsetof(ncclConfig_t, version)", offset_of!(Config, version) as u64),
        ("offsetof(ncclConfig_t, blocking)", offset_of!(Config, blocking) as u64),
        ("offsetof(ncclConfig_t, cgaClusterSize)", offset_of!(Config, cga_cluster_size) as u64),
        ("offsetof(ncclConfig_t, minCTAs)", offset_of!(Config, min_ctas) as u64),
        ("offsetof(ncclConfig_t, maxCTAs)", offset_of!(Config, max_ctas) as u64),
        ("offsetof(ncclConfig_t, netName)", offset_of!(Config, net_name) as u64),
        ("offsetof(ncclConfig_t, splitShare)", offset_of!(Config, split_share) as u64),
        ("((ncclConfig_t)NCCL_CONFIG_INITIALIZER).magic", u64::from(CONFIG_MAGIC)),
        ("(unsigned)NCCL_CONFIG_UNDEF_INT", u64::from(UNDEFINED.cast_unsigned())),
        ("ncclSuccess", SUCCESS as u64),
        ("ncclInProgress", IN_PROGRESS as u64),
        ("ncclFloat32", FLOAT as u64),
        ("ncclSum", SUM as u64),
        ("(unsigned)NCCL_SPLIT_NOCOLOR", u64::from(NO_COLOR.cast_unsigned())),
        (has_type!("ncclCommSplit" "(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *)"), 1),
        (has_type!("ncclCommUserRank" "(const ncclComm_t, int *)"), 1),
        (has_type!("ncclCommCount" "(const ncclComm_t, int *)"), 1),
        (
            has_type!(
                "ncclReduceScatter"
                "(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t)"
            ),
            1,
        ),
        (
            has_type!(
                "ncclAllGather" "(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)"
            ),
            1,
        ),
    ]
}

const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;
/// `ncclFloat32`
const FLOAT: c_int = 7;
/// `ncclSum`
const SUM: c_int = 0;

/// An error of NCCL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function}: NCCL returned {code} ({text})")]
pub struct NcclError {
    /// The function that failed.
    pub function: &'static str,
    /// The `ncclResult_t` of nccl.h.
    pub code: c_int,
    /// NCCL's description of the code.
    pub text: String,
}

/// The state of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The previous call is in progress, so the communicator cannot be used yet.
    InProgress,
    /// The communicator can be used.
    Ready,
}

type Raw = *mut c_void;
/// The type of `ncclCommUserRank` and `ncclCommCount`.
type Ask = unsafe extern "C" fn(Raw, *mut c_int) -> c_int;

/// The time between two checks of a call in progress.
const POLL: Duration = Duration::from_micros(200);

/// The functions of an NCCL library.
pub struct Nccl {
    unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    init: unsafe extern "C" fn(*mut Raw, c_int, UniqueId, c_int, *mut Config) -> c_int,
    async_error: unsafe extern "C" fn(Raw, *mut c_int) -> c_int,
    all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Raw, *mut c_void) -> c_int,
    reduce_scatter:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Raw, *mut c_void) -> c_int,
    all_gather: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Raw, *mut c_void) -> c_int,
    user_rank: Ask,
    count: Ask,
    /// Exists since NCCL 2.18.
    split: Result<CommSplit, Absent>,
    finalize: unsafe extern "C" fn(Raw) -> c_int,
    destroy: unsafe extern "C" fn(Raw) -> c_int,
    abort: unsafe extern "C" fn(Raw) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Nccl {
    /// Finds NCCL. The search order is: the library that the process has loaded, the one at `path` (or in
    /// `PACELINE_NCCL`), the one on the loader's path, and the one in Python's packages.
    ///
    /// # Errors
    /// Returns an error if there is no NCCL, or if it is older than 2.14, the first release with non-blocking
    /// communicators.
    pub fn open(path: Option<&Path>) -> Result<Arc<Self>, NoNccl> {
        let library = Library::open_or(&WANTED, path)?;
        Ok(Arc::new(Self::new(&library)?))
    }

    fn new(library: &Library) -> Result<Self, Absent> {
        // SAFETY: the types are those of nccl.h, the same in 2.20 and in 2.28.
        unsafe {
            Ok(Self {
                unique_id: library.function("ncclGetUniqueId")?,
                init: library.function("ncclCommInitRankConfig")?,
                async_error: library.function("ncclCommGetAsyncError")?,
                all_reduce: library.function("ncclAllReduce")?,
                reduce_scatter: library.function("ncclReduceScatter")?,
                all_gather: library.function("ncclAllGather")?,
                user_rank: library.function("ncclCommUserRank")?,
                count: library.function("ncclCommCount")?,
                split: library.function("ncclCommSplit"),
                finalize: library.function("ncclCommFinalize")?,
                destroy: library.function("ncclCommDestroy")?,
                abort: library.function("ncclCommAbort")?,
                error_string: library.function("ncclGetErrorString")?,
            })
        }
    }

    /// Creates a name for a new communicator.
    ///
    /// # Errors
    /// Returns an error if NCCL finds no network interface on which other ranks can reach it.
    pub fn unique_id(&self) -> Result<UniqueId, NcclError> {
        let mut id = UniqueId([0; UNIQUE_ID_BYTES]);
        // SAFETY: the call writes one id to a valid place.
        self.check("ncclGetUniqueId", unsafe { (self.unique_id)(&raw mut id) })?;
        Ok(id)
    }

    /// Begins to join the communicator `id` of `size` ranks, on the calling thread's device. [`Communicator::state`]
    /// becomes ready once all ranks have joined.
    ///
    /// # Errors
    /// Returns an error if NCCL refuses.
    pub fn join(self: &Arc<Self>, id: &UniqueId, rank: u32, size: u32) -> Result<Communicator, NcclError> {
        let mut config = Config::that_does_not_block();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the call writes a communicator to `raw` and reads the config before it returns.
        let code = unsafe {
            (self.init)(&raw mut raw, size.cast_signed(), *id, rank.cast_signed(), &raw mut config)
        };
        self.accept("ncclCommInitRankConfig", code)?;
        Ok(Communicator { nccl: self.clone(), raw })
    }

    fn check(&self, function: &'static str, code: c_int) -> Result<(), NcclError> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(function, code)) }
    }

    /// Checks the code of a call that may continue in the background, which is not an error.
    fn accept(&self, function: &'static str, code: c_int) -> Result<(), NcclError> {
        if code == IN_PROGRESS { Ok(()) } else { self.check(function, code) }
    }

    fn error(&self, function: &'static str, code: c_int) -> NcclError {
        // SAFETY: NCCL returns null or a static C string for every code.
        let text = unsafe {
            let text = (self.error_string)(code);
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        };
        NcclError { function, code, text }
    }
}

/// A rank of a communicator. Dropping it gives up its collectives on this rank, and thereby on the other ranks.
/// [`Self::finish`] lets them end first.
pub struct Communicator {
    nccl: Arc<Nccl>,
    raw: Raw,
}

// SAFETY: threads may use a communicator one after another. It is not Sync.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Returns the state of the communicator.
    ///
    /// # Errors
    /// Returns an error if the communicator has failed, here or on another rank. It cannot be used any more.
    pub fn state(&self) -> Result<State, NcclError> {
        let mut code = SUCCESS;
        // SAFETY: the communicator is alive, and the call writes one integer to a valid place.
        let asked = unsafe { (self.nccl.async_error)(self.raw, &raw mut code) };
        self.nccl.check("ncclCommGetAsyncError", asked)?;
        match code {
            SUCCESS => Ok(State::Ready),
            IN_PROGRESS => Ok(State::InProgress),
            code => Err(self.nccl.error("a collective", code)),
        }
    }

    /// Enqueues on `stream` that `floats` are replaced by their sum over all ranks. [`Self::state`] must be ready
    /// before this call, and again before the next.
    ///
    /// # Errors
    /// Returns an error if NCCL refuses.
    pub fn all_reduce(
        &self,
        floats: &mut CudaViewMut<'_, f32>,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let len = floats.len();
        let (address, _in_order) = floats.device_ptr_mut(stream);
        let data = address as *mut c_void;
        // SAFETY: `data` points to `len` floats, borrowed until the call returns. Later accesses, and the free, follow
        // in the order of a stream.
        let code = unsafe {
            (self.nccl.all_reduce)(data, data, len, FLOAT, SUM, self.raw, stream.cu_stream().cast())
        };
        self.nccl.accept("ncclAllReduce", code)
    }

    /// Enqueues on `stream` that this rank's [`Self::shard`] of `floats` is replaced by its sum over all ranks. The
    /// other floats are undefined afterwards. [`Self::state`] must be ready, as for [`Self::all_reduce`].
    ///
    /// # Errors
    /// Returns an error if NCCL refuses.
    ///
    /// # Panics
    /// Panics if the number of floats is not a multiple of the number of ranks.
    pub fn reduce_scatter(
        &self,
        floats: &mut CudaViewMut<'_, f32>,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let Dealt { all, own, len, _in_order } = self.dealt(floats, stream)?;
        let stream = stream.cu_stream().cast();
        // SAFETY: as in `all_reduce`, with `len` floats for each rank. nccl.h allows the result to be this rank's part
        // of the input.
        let code = unsafe { (self.nccl.reduce_scatter)(all, own, len, FLOAT, SUM, self.raw, stream) };
        self.nccl.accept("ncclReduceScatter", code)
    }

    /// Enqueues on `stream` that `floats` are filled with every rank's own [`Self::shard`]. [`Self::state`] must be
    /// ready, as for [`Self::all_reduce`].
    ///
    /// # Errors
    /// Returns an error if NCCL refuses.
    ///
    /// # Panics
    /// Panics if the number of floats is not a multiple of the number of ranks.
    pub fn all_gather(
        &self,
        floats: &mut CudaViewMut<'_, f32>,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let Dealt { all, own, len, _in_order } = self.dealt(floats, stream)?;
        let stream = stream.cu_stream().cast();
        // SAFETY: as in `reduce_scatter`. nccl.h allows the input to be this rank's part of the result.
        let code = unsafe { (self.nccl.all_gather)(own, all, len, FLOAT, self.raw, stream) };
        self.nccl.accept("ncclAllGather", code)
    }

    /// Returns the range of this rank's shard if `floats` floats are divided equally among the ranks, in the order of
    /// ranks. [`Self::state`] must be ready.
    ///
    /// # Errors
    /// Returns an error if NCCL does not report the rank or the number of ranks.
    ///
    /// # Panics
    /// Panics if `floats` is not a multiple of the number of ranks.
    pub fn shard(&self, floats: usize) -> Result<Range<usize>, NcclError> {
        let rank = self.ask("ncclCommUserRank", self.nccl.user_rank)?;
        let ranks = self.ask("ncclCommCount", self.nccl.count)?;
        assert!(floats.is_multiple_of(ranks), "{floats} floats cannot be split equally among {ranks} ranks");
        let len = floats / ranks;
        Ok(rank * len..(rank + 1) * len)
    }

    fn dealt<'a>(
        &self,
        floats: &'a mut CudaViewMut<'_, f32>,
        stream: &'a CudaStream,
    ) -> Result<Dealt<'a>, NcclError> {
        let shard = self.shard(floats.len())?;
        let (address, _in_order) = floats.device_ptr_mut(stream);
        let own = address + (shard.start * size_of::<f32>()) as u64;
        Ok(Dealt { all: address as *mut c_void, own: own as *mut c_void, len: shard.len(), _in_order })
    }

    fn ask(&self, function: &'static str, ask: Ask) -> Result<usize, NcclError> {
        let mut answer = 0;
        // SAFETY: the communicator is alive, and the call writes one integer to a valid place.
        self.nccl.check(function, unsafe { ask(self.raw, &raw mut answer) })?;
        Ok(answer.cast_unsigned() as usize)
    }
}

/// Floats in device memory, divided into one shard per rank.
struct Dealt<'a> {
    all: *mut c_void,
    /// This rank's shard.
    own: *mut c_void,
    /// The number of floats in a shard.
    len: usize,
    /// Held until the call returns, so that later uses of the memory follow it.
    _in_order: SyncOnDrop<'a>,
}

impl Communicator {
    /// Ends the communicator in good order: completes all begun collectives, here and on the other ranks. Waits at most
    /// `patience`.
    ///
    /// # Errors
    /// Returns an error if NCCL refuses or the wait is too long. The communicator is then given up.
    pub fn finish(self, patience: Duration) -> Result<(), NcclError> {
        // SAFETY: the communicator is alive, and nothing more is begun on it.
        self.nccl.accept("ncclCommFinalize", unsafe { (self.nccl.finalize)(self.raw) })?;
        let deadline = Instant::now() + patience;
        while self.state()? == State::InProgress {
            if Instant::now() > deadline {
                return Err(self.nccl.error("ncclCommFinalize", IN_PROGRESS));
            }
            std::thread::sleep(POLL);
        }
        let done = ManuallyDrop::new(self);
        // SAFETY: the communicator is finalized and not used again. It is freed here and, as `ManuallyDrop`, not by its
        // drop. The table of functions is leaked with it; the library stays open anyway.
        done.nccl.check("ncclCommDestroy", unsafe { (done.nccl.destroy)(done.raw) })
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // ncclCommDestroy would wait for ranks that may be gone. A drop cannot report a failure of the abort.
        // SAFETY: the communicator is alive and not used again.
        let _code = unsafe { (self.nccl.abort)(self.raw) };
    }
}

/// Gives up several communicators of one rank at the same time, each on its own thread.
///
/// Giving them up one after the other could block forever if their collectives share a stream. NCCL waits for the
/// communicator's own collectives, and a collective of another communicator, which waits for a rank that is gone, may
/// be enqueued before them. Grouped calls would avoid this too, but only since NCCL 2.22.
///
/// Each thread selects `device`, the device of the communicators. Otherwise NCCL would create a context on the first
/// device for a thread that has none.
pub fn give_up(communicators: Vec<Communicator>, device: &Device) {
    thread::scope(|scope| {
        for communicator in communicators {
            let thread = thread::Builder::new().name("paceline-abort".into());
            let give_up = move || {
                // A failed device cannot be selected, but the communicator must be given up anyway.
                let _unbound = device.bind();
                drop(communicator);
            };
            // If no thread can be started, the communicator is dropped here.
            let _thread = thread.spawn_scoped(scope, give_up);
        }
    });
}
