//! NCCL's own functions, behind those of this library.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

/// NCCL's function as the loader would have found it for the caller, were this library not before it: in what all objects
/// see, then in the object that calls (which may have NCCL in itself and be no part of what all see, as PyTorch's
/// libraries are in Python) and what it is linked with. Else in the NCCL that the process has, and in any other object.
pub(super) fn found(name: &'static str, kept: &'static str) -> Option<*const c_void> {
    let terminated = CString::new(name).ok()?;
    // SAFETY: the name ends with a zero.
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

/// The function in an object that is loaded, or in one that it is linked with; never this library's own.
fn function_of(object: &CStr, name: &CStr) -> Option<*const c_void> {
    // SAFETY: nothing is loaded, both texts end with a zero, and the object stays loaded when it is let go here.
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

/// Where the object with this address in it begins, and its file.
fn object_of(address: *const c_void) -> Option<(*mut c_void, CString)> {
    // SAFETY: any address may be asked for; a table of pointers is filled, whose text is copied.
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
    /// Of libgcc_s, which Rust's own panics use: calls `visit` for each frame until it answers other than 0.
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// The first frame that is not of this library.
struct Caller {
    own: *mut c_void,
    object: Option<CString>,
}

extern "C" fn visit(frame: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: libgcc_s passes a frame that lives during this call; the argument is what `caller` passed.
    let (address, caller) = unsafe { (_Unwind_GetIP(frame), &mut *argument.cast::<Caller>()) };
    match object_of(ptr::without_provenance(address)) {
        Some((base, _)) if base == caller.own => 0,
        other => {
            caller.object = other.map(|(_, file)| file);
            1
        }
    }
}

/// The object whose code called into this library.
fn caller() -> Option<CString> {
    let mut caller = Caller { own: own_base(), object: None };
    // SAFETY: `visit` is called with frames of this thread while `caller` lives.
    unsafe { _Unwind_Backtrace(visit, (&raw mut caller).cast()) };
    caller.object
}

/// Files of all objects that are loaded.
fn objects() -> Vec<CString> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, all: *mut c_void) -> c_int {
        // SAFETY: the loader passes an object's description, and what `objects` passed.
        let (name, all): (*const c_char, _) =
            unsafe { ((*info).dlpi_name, &mut *all.cast::<Vec<CString>>()) };
        if !name.is_null() {
            // SAFETY: the name ends with a zero; it is copied.
            all.push(unsafe { CStr::from_ptr(name) }.to_owned());
        }
        0
    }
    let mut all: Vec<CString> = Vec::new();
    // SAFETY: `add` gets the list, which lives that long.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut all).cast()) };
    all.retain(|name| !name.is_empty());
    all
}
