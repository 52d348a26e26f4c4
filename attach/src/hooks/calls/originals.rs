//! Finds NCCL's own functions, which the library's functions hide.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

/// Finds NCCL's function as the loader would for the caller without this library. Searches the global scope first, then
/// the calling object and its dependencies: that object may contain NCCL without being in the global scope, as
/// PyTorch's libraries are in Python. Falls back to the NCCL that is mapped in the process, and then to any other
/// object.
pub(super) fn found(name: &'static str, kept: &'static str) -> Option<*const c_void> {
    let terminated = CString::new(name).ok()?;
    // SAFETY: the name is a valid C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, terminated.as_ptr()) };
    if !next.is_null() {
        return Some(next.cast_const());
    }
    let in_object = |object: &CString| function_of(object, &terminated);
    caller()
        .as_ref()
        .and_then(in_object)
        .or_else(|| gpu::nccl::original(name, kept))
        .or_else(|| objects().iter().find_map(in_object))
}

/// Finds the function in a loaded object or in its dependencies. Never returns this library's own function.
fn function_of(object: &CStr, name: &CStr) -> Option<*const c_void> {
    // SAFETY: both names are valid C strings. `RTLD_NOLOAD` loads nothing, and the object stays loaded after `dlclose`.
    let function = unsafe {
        let handle = libc::dlopen(object.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return None;
        }
        let function = libc::dlsym(handle, name.as_ptr()).cast_const();
        libc::dlclose(handle);
        function
    };
    let is_theirs = || object_of(function).is_some_and(|(base, _)| base != own_base());
    (!function.is_null() && is_theirs()).then_some(function)
}

/// Returns the base address and the file of the object that contains an address.
fn object_of(address: *const c_void) -> Option<(*mut c_void, CString)> {
    // SAFETY: `dladdr` accepts any address and fills `found`, for which zeros are valid. The file name is copied at
    // once.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let is_known = libc::dladdr(address, &raw mut found) != 0 && !found.dli_fname.is_null();
        is_known.then(|| (found.dli_fbase, CStr::from_ptr(found.dli_fname).to_owned()))
    }
}

fn own_base() -> *mut c_void {
    object_of(found as *const c_void).map_or(ptr::null_mut(), |(base, _)| base)
}

unsafe extern "C-unwind" {
    /// From libgcc_s, which Rust's panics use too. Calls `visit` for each frame until it returns a value other than 0.
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// The first frame outside this library.
struct Caller {
    own: *mut c_void,
    object: Option<CString>,
}

extern "C" fn visit(frame: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: libgcc_s passes a frame that is valid during this call; the argument is the one that `caller` passed.
    let (address, caller) = unsafe { (_Unwind_GetIP(frame), &mut *argument.cast::<Caller>()) };
    match object_of(ptr::without_provenance(address)) {
        Some((base, _)) if base == caller.own => 0,
        other => {
            caller.object = other.map(|(_, file)| file);
            1
        }
    }
}

/// Returns the object whose code called into this library.
fn caller() -> Option<CString> {
    let mut caller = Caller { own: own_base(), object: None };
    // SAFETY: `visit` is called only during this call, with frames of this thread and a pointer to `caller`, which
    // outlives it.
    unsafe { _Unwind_Backtrace(visit, (&raw mut caller).cast()) };
    caller.object
}

/// Returns the files of all loaded objects.
fn objects() -> Vec<CString> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, all: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid description and the pointer that `objects` passed.
        let (name, all): (*const c_char, _) =
            unsafe { ((*info).dlpi_name, &mut *all.cast::<Vec<CString>>()) };
        if !name.is_null() {
            // SAFETY: the name is a valid C string; it is copied at once.
            all.push(unsafe { CStr::from_ptr(name) }.to_owned());
        }
        0
    }
    let mut all: Vec<CString> = Vec::new();
    // SAFETY: `add` is called only during this call, and `all` outlives it.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut all).cast()) };
    all.retain(|name| !name.is_empty());
    all
}
