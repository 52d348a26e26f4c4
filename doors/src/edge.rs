//! Bytes that lie at the edge of what memory there is: whoever reads one byte beyond them, ends.

use std::ffi::c_void;
use std::ptr;

/// Pages for the bytes, and one behind them that may not be touched.
pub(crate) struct Edge {
    pages: *mut c_void,
    mapped: usize,
    begin: *mut u8,
}

const PAGE: usize = 4_096;

impl Edge {
    /// A copy whose last byte is the last one that can be read. It begins where it comes to begin.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let used = bytes.len().next_multiple_of(PAGE).max(PAGE);
        let mapped = used + PAGE;
        let (readable, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: these pages are new, only this value has their address, and the last one is made unreadable.
        unsafe {
            let pages = libc::mmap(ptr::null_mut(), mapped, readable, private, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED, "there is memory for {mapped} bytes");
            assert_eq!(libc::mprotect(pages.byte_add(used), PAGE, libc::PROT_NONE), 0);
            let begin = pages.cast::<u8>().add(used - bytes.len());
            ptr::copy_nonoverlapping(bytes.as_ptr(), begin, bytes.len());
            Self { pages, mapped, begin }
        }
    }

    pub(crate) fn at(&self) -> *const c_void {
        self.begin.cast_const().cast()
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SAFETY: they were mapped so.
        unsafe { libc::munmap(self.pages, self.mapped) };
    }
}
