//! The fake GPU, loaded into the test's process, and its functions beyond those of CUDA and NCCL.
#![allow(unsafe_code, reason = "the fake GPU has a C interface like CUDA")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::CudaStream;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use wire::clock::MonoNanos;

use crate::fetch;
use crate::programs::program;

/// The start of virtual time on CUPTI's clock, in nanoseconds since 1970.
pub const CUPTI_EPOCH: i64 = 1_700_000_000_000_000_000;

/// Returns the path of the fake GPU's library.
#[must_use]
pub fn path() -> PathBuf {
    program("libfakegpu.so")
}

/// Creates a folder, for `LD_LIBRARY_PATH`, in which the fake GPU has the names of the libraries that it replaces.
///
/// # Errors
/// Returns an error if files cannot be written.
pub fn installed_as(names: &[&str]) -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for name in names {
        std::os::unix::fs::symlink(path(), folder.path().join(name))?;
    }
    Ok(folder)
}

/// Loads the fake GPU. From then on, this process finds it as the CUDA driver.
///
/// # Panics
/// Panics if the library is not built.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // SAFETY: the fake GPU has no initializers.
    LIBRARY.get_or_init(|| unsafe {
        Library::open(Some(path()), RTLD_NOW | RTLD_LOCAL).expect("the fake GPU is not built")
    })
}

/// Returns a function of the fake GPU.
///
/// # Safety
/// `F` must be the type of the function.
unsafe fn function<F: Copy>(name: &CStr) -> F {
    // SAFETY: the caller guarantees the type.
    unsafe { *library().get::<F>(name.to_bytes()).expect("the fake GPU has no such function") }
}

/// Returns the calling thread's position in virtual time.
#[must_use]
pub fn now() -> MonoNanos {
    // SAFETY: the type is that of the fake GPU's declaration.
    let host = unsafe { function::<extern "C" fn() -> i64>(c"fakegpu_host_nanos") };
    MonoNanos(host())
}

/// A handle of CUDA or NCCL, which is only passed on.
pub type Handle = *mut c_void;
/// The type of `cuModuleGetFunction`.
pub type Find = unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_int;
/// The type of `cuLaunchKernel`.
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

/// Launches a kernel on a stream that runs for `nanos` nanoseconds.
pub fn spin(nanos: u64, stream: &CudaStream) {
    let (mut kernel, mut nanos) = (ptr::null_mut(), nanos);
    let mut arguments = [(&raw mut nanos).cast::<c_void>()];
    // SAFETY: the types are those of cuda.h. The kernel has one integer argument, which is read before the call
    // returns.
    let results = unsafe {
        let find =
            function::<Find>(c"cuModuleGetFunction")(&raw mut kernel, ptr::null_mut(), c"spin_ns".as_ptr());
        let (stream, arguments) = (stream.cu_stream().cast(), arguments.as_mut_ptr());
        let launch = function::<Launch>(c"cuLaunchKernel");
        [find, launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, ptr::null_mut())]
    };
    assert_eq!(results, [0, 0]);
}

/// Makes every later error query of a rank of the newest communicator return `error`.
pub fn fail_newest_communicator(rank: u32, error: i32) {
    // SAFETY: the type is that of the fake GPU's declaration.
    let fail = unsafe { function::<unsafe extern "C" fn(*mut c_void, c_int, c_int)>(c"fakegpu_nccl_fail") };
    // SAFETY: null stands for the newest communicator.
    unsafe { fail(ptr::null_mut(), rank.cast_signed(), error) };
}

/// Makes every later error query of a rank of a communicator return `error`. `back` counts communicators from the
/// newest, 0, to older ones. `rank` is the rank within the communicator.
pub fn fail_older_communicator(back: u32, rank: u32, error: i32) {
    // SAFETY: the type is that of the fake GPU's declaration.
    let fail = unsafe { function::<extern "C" fn(c_int, c_int, c_int)>(c"fakegpu_nccl_fail_older") };
    fail(back.cast_signed(), rank.cast_signed(), error);
}

/// Builds a library in `folder` that has the functions of NCCL 2.17 and none of 2.18. The functions do nothing.
///
/// # Errors
/// Returns an error if there is no C compiler.
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

/// Sets whether another tool is subscribed to CUPTI from now on.
pub fn take_cupti(taken: bool) {
    // SAFETY: the type is that of the fake GPU's declaration.
    let take = unsafe { function::<extern "C" fn(c_int)>(c"fakegpu_cupti_take") };
    take(c_int::from(taken));
}
