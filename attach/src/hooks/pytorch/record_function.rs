//! PyTorch's record functions, which tell its profiler what runs. gloo reports through them when it begins a collective
//! and when the collective is done, on gloo's own thread and without the interpreter's lock.
//!
//! The interface is C++, from `ATen/record_function.h`. Releases 2.4 to 2.15 have the same layout, and they are the ones
//! it is used for. Only the scope of user annotations is registered, so PyTorch's operators do not become slower.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use crate::hooks::pytorch::reductions;
use crate::host;

/// The library of PyTorch that has the functions. It is loaded already.
const LIBRARY: &CStr = c"libtorch_cpu.so";
/// `at::addGlobalCallback(at::RecordFunctionCallback)`.
const ADD: &CStr = c"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE";
/// `at::RecordFunction::name() const`.
const NAME: &CStr = c"_ZNK2at14RecordFunction4nameEv";
/// gloo's name for the collective that reduces a bucket.
const ALL_REDUCE: &CStr = c"gloo:all_reduce";
/// The number of scopes of record functions.
const SCOPES: usize = 10;
/// The scope of user annotations, which gloo reports in.
const USER_SCOPE: usize = 7;

/// `at::RecordFunctionCallback`, which is passed by value.
#[repr(C)]
struct Callback {
    begins: Begins,
    ends: unsafe extern "C" fn(*const c_void, *mut c_void),
    probability: f64,
    scopes: [bool; SCOPES],
    needs_inputs: bool,
    needs_outputs: bool,
    needs_ids: bool,
}

/// A function that returns a `std::unique_ptr`. The caller passes the place of the result as a hidden first argument and
/// expects it back.
type Begins = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> *mut *mut c_void;
type Name = unsafe extern "C" fn(*const c_void) -> *const c_char;

/// PyTorch's function for the name; `None` if record functions are not observed.
static NAMES: OnceLock<Option<Name>> = OnceLock::new();

/// Observes gloo's collectives from now on. Returns whether that is possible.
pub(super) fn observe() -> bool {
    // The hidden argument is passed like this on x86-64 only.
    cfg!(target_arch = "x86_64") && NAMES.get_or_init(register).is_some()
}

fn register() -> Option<Name> {
    // SAFETY: the names are valid C strings. `RTLD_NOLOAD` loads nothing, and PyTorch is never unloaded.
    let [add, name] = unsafe {
        let library = libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        [ADD, NAME].map(|function| libc::dlsym(library, function.as_ptr()))
    };
    if add.is_null() || name.is_null() {
        return None;
    }
    // SAFETY: the mangled names contain the types of the arguments, and the header has those of the results.
    let (add, name) = unsafe {
        type Add = unsafe extern "C" fn(Callback) -> u64;
        (std::mem::transmute::<*mut c_void, Add>(add), std::mem::transmute::<*mut c_void, Name>(name))
    };
    let mut scopes = [false; SCOPES];
    scopes[USER_SCOPE] = true;
    let callback = Callback {
        begins,
        ends,
        probability: 1.0,
        scopes,
        needs_inputs: false,
        needs_outputs: false,
        needs_ids: false,
    };
    // SAFETY: both functions stay in memory until the process ends (build.rs).
    unsafe { add(callback) };
    Some(name)
}

/// Called by PyTorch when a function begins. `result` is the place of a `std::unique_ptr`.
unsafe extern "C" fn begins(result: *mut *mut c_void, function: *const c_void) -> *mut *mut c_void {
    // SAFETY: the caller passes memory for a pointer. Null is an empty `std::unique_ptr`.
    unsafe { result.write(std::ptr::null_mut()) };
    host::guarded(|| {
        // SAFETY: PyTorch passes a record function, whose name lives as long as it.
        if unsafe { is_all_reduce(function) } {
            reductions::began(function.addr());
        }
    });
    result
}

/// Called by PyTorch when a function ends.
unsafe extern "C" fn ends(function: *const c_void, _: *mut c_void) {
    host::guarded(|| reductions::ended(function.addr()));
}

/// # Safety
/// `function` must be a record function.
unsafe fn is_all_reduce(function: *const c_void) -> bool {
    let Some(Some(name)) = NAMES.get() else { return false };
    // SAFETY: the caller guarantees it. The result is a C string.
    let name = unsafe { name(function) };
    // SAFETY: as above.
    !name.is_null() && unsafe { CStr::from_ptr(name) } == ALL_REDUCE
}
