//! Answers: a value goes to where the caller wants it, and all is well.

use std::ffi::c_int;

/// All four libraries call it 0.
pub(crate) const SUCCESS: c_int = 0;

/// # Safety
/// `to` must be good to write to.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { to.write(value) };
    SUCCESS
}
