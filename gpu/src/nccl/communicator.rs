//! NCCL's collectives, without blocking: a communicator is made, used and given up by calls that return at once.
//!
//! cudarc has NCCL too, but never finds the library that pip installs, knows no non-blocking communicators, and turns
//! codes that are newer than itself into enums.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{ManuallyDrop, offset_of};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut as _};

use super::{NoNccl, UNIQUE_ID_BYTES, UniqueId, WANTED};
use crate::library::{Absent, Library};

/// `ncclConfig_t` as it was in 2.17; later releases have more behind it and go by its size.
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

const CONFIG_MAGIC: u32 = 0xcafe_beef;
/// The release whose layout [`Config`] is, as `NCCL_VERSION` writes it.
const CONFIG_VERSION: u32 = 21_700;
/// `NCCL_CONFIG_UNDEF_INT`
const UNDEFINED: c_int = c_int::MIN;

/// What of nccl.h this file relies on, by the names that it has there: to be compared with the header itself.
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
    ]
}

const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;
/// `ncclFloat32` and `ncclSum`
const FLOAT: c_int = 7;
const SUM: c_int = 0;

/// NCCL says no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function}: NCCL answers {code} ({text})")]
pub struct NcclError {
    /// Which call.
    pub function: &'static str,
    /// `ncclResult_t` of nccl.h.
    pub code: c_int,
    /// What NCCL says of that code.
    pub text: String,
}

/// Whether a communicator can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The call before is still under way: ask again.
    InProgress,
    /// It can.
    Ready,
}

type Raw = *mut c_void;

/// How often a call that goes on is asked after.
const POLL: Duration = Duration::from_micros(200);

/// An NCCL that was found.
pub struct Nccl {
    unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    init: unsafe extern "C" fn(*mut Raw, c_int, UniqueId, c_int, *mut Config) -> c_int,
    async_error: unsafe extern "C" fn(Raw, *mut c_int) -> c_int,
    all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Raw, *mut c_void) -> c_int,
    finalize: unsafe extern "C" fn(Raw) -> c_int,
    destroy: unsafe extern "C" fn(Raw) -> c_int,
    abort: unsafe extern "C" fn(Raw) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Nccl {
    /// Finds NCCL: the one that the process has, the one at `path` (or that `PACELINE_NCCL` names), the loader's,
    /// Python's.
    ///
    /// # Errors
    /// When there is none, or it is older than 2.14, which first had communicators that do not block.
    pub fn open(path: Option<&Path>) -> Result<Arc<Self>, NoNccl> {
        let library = Library::open_or(&WANTED, path)?;
        Ok(Arc::new(Self::of(&library)?))
    }

    fn of(library: &Library) -> Result<Self, Absent> {
        // SAFETY: the types are those of nccl.h, the same in 2.20 and in 2.28.
        unsafe {
            Ok(Self {
                unique_id: library.function("ncclGetUniqueId")?,
                init: library.function("ncclCommInitRankConfig")?,
                async_error: library.function("ncclCommGetAsyncError")?,
                all_reduce: library.function("ncclAllReduce")?,
                finalize: library.function("ncclCommFinalize")?,
                destroy: library.function("ncclCommDestroy")?,
                abort: library.function("ncclCommAbort")?,
                error_string: library.function("ncclGetErrorString")?,
            })
        }
    }

    /// A name for a new communicator.
    ///
    /// # Errors
    /// When NCCL has no network interface to be reached by.
    pub fn unique_id(&self) -> Result<UniqueId, NcclError> {
        let mut id = UniqueId([0; UNIQUE_ID_BYTES]);
        // SAFETY: one id is written.
        self.check("ncclGetUniqueId", unsafe { (self.unique_id)(&raw mut id) })?;
        Ok(id)
    }

    /// Begins to join the communicator `id` of `size` ranks, on the calling thread's device. It is there when
    /// [`Communicator::state`] says so, which it does once all ranks have come.
    ///
    /// # Errors
    /// When NCCL refuses.
    pub fn join(self: &Arc<Self>, id: &UniqueId, rank: u32, size: u32) -> Result<Communicator, NcclError> {
        let mut config = Config {
            size: size_of::<Config>(),
            magic: CONFIG_MAGIC,
            version: CONFIG_VERSION,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: a communicator is written to `raw`; the config is read before the call returns.
        let code = unsafe {
            (self.init)(&raw mut raw, size.cast_signed(), *id, rank.cast_signed(), &raw mut config)
        };
        self.accept("ncclCommInitRankConfig", code)?;
        Ok(Communicator { nccl: self.clone(), raw })
    }

    fn check(&self, function: &'static str, code: c_int) -> Result<(), NcclError> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(function, code)) }
    }

    /// What goes on behind the call is no error.
    fn accept(&self, function: &'static str, code: c_int) -> Result<(), NcclError> {
        if code == IN_PROGRESS { Ok(()) } else { self.check(function, code) }
    }

    fn error(&self, function: &'static str, code: c_int) -> NcclError {
        // SAFETY: NCCL answers every code with a text of its own that is never freed.
        let text = unsafe {
            let text = (self.error_string)(code);
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        };
        NcclError { function, code, text }
    }
}

/// One rank of a communicator. Dropping it gives up its collectives, on this rank and, through them, on the others;
/// [`Self::finish`] lets them end first.
pub struct Communicator {
    nccl: Arc<Nccl>,
    raw: Raw,
}

// SAFETY: a communicator may be used by one thread after another; it is not Sync.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Whether it can be used now.
    ///
    /// # Errors
    /// What went wrong since it was made, here or on another rank; it is of no use then.
    pub fn state(&self) -> Result<State, NcclError> {
        let mut code = SUCCESS;
        // SAFETY: one integer is written; the communicator lives.
        let asked = unsafe { (self.nccl.async_error)(self.raw, &raw mut code) };
        self.nccl.check("ncclCommGetAsyncError", asked)?;
        match code {
            SUCCESS => Ok(State::Ready),
            IN_PROGRESS => Ok(State::InProgress),
            code => Err(self.nccl.error("a collective", code)),
        }
    }

    /// Replaces `floats` by their sum over all ranks, in the order of `stream`. [`Self::state`] must be ready, and says
    /// when the next call may be made.
    ///
    /// # Errors
    /// When NCCL refuses.
    pub fn all_reduce(&self, floats: &mut CudaSlice<f32>, stream: &CudaStream) -> Result<(), NcclError> {
        let len = floats.len();
        let (address, _in_order) = floats.device_ptr_mut(stream);
        let data = address as *mut c_void;
        // SAFETY: `len` floats lie there. They are borrowed until the call is made, and whoever frees or reads them
        // later does so in the order of a stream.
        let code = unsafe {
            (self.nccl.all_reduce)(data, data, len, FLOAT, SUM, self.raw, stream.cu_stream().cast())
        };
        self.nccl.accept("ncclAllReduce", code)
    }
}

impl Communicator {
    /// Ends in good order: what was begun is completed, here and on the other ranks. Waits at most `patience` for it.
    ///
    /// # Errors
    /// When that did not work out; the communicator is given up then.
    pub fn finish(self, patience: Duration) -> Result<(), NcclError> {
        // SAFETY: nothing is begun on it any more.
        self.nccl.accept("ncclCommFinalize", unsafe { (self.nccl.finalize)(self.raw) })?;
        let deadline = Instant::now() + patience;
        while self.state()? == State::InProgress {
            if Instant::now() > deadline {
                return Err(self.nccl.error("ncclCommFinalize", IN_PROGRESS));
            }
            std::thread::sleep(POLL);
        }
        let done = ManuallyDrop::new(self);
        // SAFETY: it is finalized and used no more; what it was made of is freed here and not by dropping it. The table of
        // functions stays, as its library does.
        done.nccl.check("ncclCommDestroy", unsafe { (done.nccl.destroy)(done.raw) })
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // Not ncclCommDestroy, which waits for ranks that may be gone. Nobody is left to be told of a failure.
        // SAFETY: nothing uses it any more.
        let _code = unsafe { (self.nccl.abort)(self.raw) };
    }
}
