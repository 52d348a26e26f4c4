//! Answers of the C functions: a value is written to the caller's pointer, and the call succeeds.

use std::ffi::c_int;

/// The code for success in all four libraries.
pub(crate) const SUCCESS: c_int = 0;

/// Writes `value` to `place` and returns success.
///
/// # Safety
/// `place` must be valid for a write.
pub(crate) unsafe fn give<T>(place: *mut T, value: T) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { place.write(value) };
    SUCCESS
}
