//! The stand-in for a GPU, loaded into the test's own process, and what it has beside CUDA and NCCL.
#![allow(unsafe_code, reason = "it calls the stand-in as CUDA is called")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::CudaStream;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use wire::clock::MonoNanos;

use crate::fetch;
use crate::programs::program;

/// What CUPTI's clock shows when virtual time begins, in nanoseconds since 1970.
pub const CUPTI_EPOCH: i64 = 1_700_000_000_000_000_000;

/// Its file.
#[must_use]
pub fn path() -> PathBuf {
    program("libfakegpu.so")
}

/// A folder, for `LD_LIBRARY_PATH`, that has it under the names of the libraries it stands in for.
///
/// # Errors
/// When files cannot be written.
pub fn installed_as(names: &[&str]) -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for name in names {
        std::os::unix::fs::symlink(path(), folder.path().join(name))?;
    }
    Ok(folder)
}

/// Loads it: from then on it is what this process finds as the driver.
///
/// # Panics
/// When it is not built.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // SAFETY: the stand-in has no initialisers.
    LIBRARY.get_or_init(|| unsafe {
        Library::open(Some(path()), RTLD_NOW | RTLD_LOCAL).expect("the stand-in is built")
    })
}

/// # Safety
/// `F` must be the function's type.
unsafe fn function<F: Copy>(name: &CStr) -> F {
    // SAFETY: the caller vouches for the type.
    unsafe { *library().get::<F>(name.to_bytes()).expect("the stand-in has it") }
}

/// Where the calling thread is in virtual time.
#[must_use]
pub fn now() -> MonoNanos {
    // SAFETY: the stand-in declares it so.
    let host = unsafe { function::<extern "C" fn() -> i64>(c"fakegpu_host_nanos") };
    MonoNanos(host())
}

/// Anything of CUDA's or NCCL's that is only handed on.
pub type Handle = *mut c_void;
/// `cuModuleGetFunction`
pub type Find = unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_int;
/// `cuLaunchKernel`
pub type Launch = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut Handle,
    *mut Handle,
) -> c_int;

/// Puts a kernel on a stream that takes so long, in nanoseconds.
pub fn spin(nanos: u64, stream: &CudaStream) {
    let (mut kernel, mut nanos) = (ptr::null_mut(), nanos);
    let mut arguments = [(&raw mut nanos).cast::<c_void>()];
    // SAFETY: the types are those of cuda.h; the kernel takes one integer, which is read before the call returns.
    let results = unsafe {
        let find =
            function::<Find>(c"cuModuleGetFunction")(&raw mut kernel, ptr::null_mut(), c"spin_ns".as_ptr());
        let (stream, arguments) = (stream.cu_stream().cast(), arguments.as_mut_ptr());
        let launch = function::<Launch>(c"cuLaunchKernel");
        [find, launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, ptr::null_mut())]
    };
    assert_eq!(results, [0, 0]);
}

/// From now on a rank of the newest communicator is told of an error when it asks.
pub fn fail_newest_communicator(rank: u32, error: i32) {
    // SAFETY: the stand-in declares it so.
    let fail = unsafe { function::<unsafe extern "C" fn(*mut c_void, c_int, c_int)>(c"fakegpu_nccl_fail") };
    // SAFETY: without a communicator it takes the newest.
    unsafe { fail(ptr::null_mut(), rank.cast_signed(), error) };
}

/// From now on a rank of a communicator is told of an error when it asks. Communicators are counted from the newest, 0,
/// back to older ones; the rank is that of its group.
pub fn fail_older_communicator(back: u32, rank: u32, error: i32) {
    // SAFETY: the stand-in declares it so.
    let fail = unsafe { function::<extern "C" fn(c_int, c_int, c_int)>(c"fakegpu_nccl_fail_older") };
    fail(back.cast_signed(), rank.cast_signed(), error);
}

/// A library in `folder` that has the functions of NCCL 2.17 and none of 2.18; nothing that they are asked for is done.
///
/// # Errors
/// When there is no C compiler.
pub fn nccl_before_groups(folder: &Path) -> anyhow::Result<PathBuf> {
    let (source, library) = (folder.join("old.c"), folder.join("libnccl_2_17.so"));
    std::fs::write(&source, NCCL_2_17)?;
    let arguments = ["-w", "-shared", "-fPIC", "-o", &library.to_string_lossy(), &source.to_string_lossy()];
    fetch::succeed(Path::new("cc"), &arguments).map_err(anyhow::Error::msg)?;
    Ok(library)
}

const NCCL_2_17: &str = r#"
typedef struct { char bytes[128]; } Id;
static int communicator;
int ncclGetUniqueId(Id *id) { return 0; }
int ncclCommInitRankConfig(void **made, int size, Id id, int rank, void *config) { *made = &communicator; return 0; }
int ncclCommGetAsyncError(void *communicator, int *error) { *error = 0; return 0; }
int ncclCommUserRank(void *communicator, int *rank) { *rank = 0; return 0; }
int ncclCommCount(void *communicator, int *count) { *count = 1; return 0; }
int ncclAllReduce(void) { return 0; }
int ncclReduceScatter(void) { return 0; }
int ncclAllGather(void) { return 0; }
int ncclCommFinalize(void *communicator) { return 0; }
int ncclCommDestroy(void *communicator) { return 0; }
int ncclCommAbort(void *communicator) { return 0; }
const char *ncclGetErrorString(int code) { return "an error"; }
"#;

/// From now on another tool is subscribed to CUPTI, or none.
pub fn take_cupti(taken: bool) {
    // SAFETY: the stand-in declares it so.
    let take = unsafe { function::<extern "C" fn(c_int)>(c"fakegpu_cupti_take") };
    take(c_int::from(taken));
}
