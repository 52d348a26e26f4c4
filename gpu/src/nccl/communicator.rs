//! NCCL's collectives, without blocking: a communicator is made, used and given up by calls that return at once.
//!
//! cudarc has NCCL too, but never finds the library that pip installs, knows no non-blocking communicators, and turns
//! codes that are newer than itself into enums.

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
/// The release whose layout [`Config`] is, as `NCCL_VERSION` writes it.
const CONFIG_VERSION: u32 = 21_700;
/// `NCCL_CONFIG_UNDEF_INT`
const UNDEFINED: c_int = c_int::MIN;

/// An expression of C that is 1 where a function takes these arguments and answers with a code.
macro_rules! has_type {
    ($function:literal $arguments:literal) => {
        concat!("__builtin_types_compatible_p(__typeof__(", $function, "), ncclResult_t ", $arguments, ")")
    };
}

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
/// `ncclCommUserRank` and its like
type Ask = unsafe extern "C" fn(Raw, *mut c_int) -> c_int;

/// How often a call that goes on is asked after.
const POLL: Duration = Duration::from_micros(200);

/// An NCCL that was found.
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
    /// Since 2.18.
    split: Result<CommSplit, Absent>,
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
        let mut config = Config::that_does_not_block();
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
    pub fn all_reduce(
        &self,
        floats: &mut CudaViewMut<'_, f32>,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
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

    /// Replaces this rank's [`Self::shard`] of `floats` by its sum over all ranks, in the order of `stream`; the rest of
    /// them is of no use from then on. As [`Self::all_reduce`] otherwise.
    ///
    /// # Errors
    /// When NCCL refuses.
    ///
    /// # Panics
    /// When there are not as many floats for each rank.
    pub fn reduce_scatter(
        &self,
        floats: &mut CudaViewMut<'_, f32>,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let Dealt { all, own, len, _in_order } = self.dealt(floats, stream)?;
        let stream = stream.cu_stream().cast();
        // SAFETY: as above, with `len` floats for each rank; nccl.h allows the result to be this rank's part of them.
        let code = unsafe { (self.nccl.reduce_scatter)(all, own, len, FLOAT, SUM, self.raw, stream) };
        self.nccl.accept("ncclReduceScatter", code)
    }

    /// Fills `floats`, in the order of `stream`, with every rank's own [`Self::shard`] of them. As [`Self::all_reduce`]
    /// otherwise.
    ///
    /// # Errors
    /// When NCCL refuses.
    ///
    /// # Panics
    /// When there are not as many floats for each rank.
    pub fn all_gather(
        &self,
        floats: &mut CudaViewMut<'_, f32>,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let Dealt { all, own, len, _in_order } = self.dealt(floats, stream)?;
        let stream = stream.cu_stream().cast();
        // SAFETY: as above; nccl.h allows what is sent to be this rank's part of the result.
        let code = unsafe { (self.nccl.all_gather)(own, all, len, FLOAT, self.raw, stream) };
        self.nccl.accept("ncclAllGather", code)
    }

    /// Which of so many floats are this rank's, when each rank has as many, in the order of ranks.
    ///
    /// # Errors
    /// When NCCL does not say which rank this is; [`Self::state`] must be ready.
    ///
    /// # Panics
    /// When there are not as many floats for each rank.
    pub fn shard(&self, floats: usize) -> Result<Range<usize>, NcclError> {
        let rank = self.ask("ncclCommUserRank", self.nccl.user_rank)?;
        let ranks = self.ask("ncclCommCount", self.nccl.count)?;
        assert!(floats.is_multiple_of(ranks), "{floats} floats are not as many for each of {ranks} ranks");
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
        // SAFETY: one integer is written; the communicator lives.
        self.nccl.check(function, unsafe { ask(self.raw, &raw mut answer) })?;
        Ok(answer.cast_unsigned() as usize)
    }
}

/// Floats of all ranks on a device, as NCCL takes them.
struct Dealt<'a> {
    all: *mut c_void,
    /// This rank's shard of them.
    own: *mut c_void,
    /// Floats of a shard.
    len: usize,
    /// Held until the call is made: what comes later waits for it.
    _in_order: SyncOnDrop<'a>,
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

/// Gives up several communicators of one rank, all at once. One after the other would last forever where their
/// collectives lie on one stream: NCCL waits for a communicator's own, and before them there may be one of another
/// communicator, which waits for a rank that is gone. (Groups of calls would do, but only since NCCL 2.22.) They are on
/// `device`: NCCL would else make a context on the first one for a thread that has none.
pub fn give_up(communicators: Vec<Communicator>, device: &Device) {
    thread::scope(|scope| {
        for communicator in communicators {
            let thread = thread::Builder::new().name("paceline-abort".into());
            let give_up = move || {
                // A device that has failed cannot be chosen, and they are to go all the same.
                let _unbound = device.bind();
                drop(communicator);
            };
            // Where there are no threads any more, it is dropped here.
            let _thread = thread.spawn_scoped(scope, give_up);
        }
    });
}
