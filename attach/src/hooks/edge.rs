//! A buffer whose last byte is followed by unreadable memory. Reading one byte too far ends the process.

use std::ffi::c_void;
use std::ptr;

/// The pages of the buffer, followed by one inaccessible page.
pub(crate) struct Edge {
    pages: *mut c_void,
    mapped: usize,
    begin: *mut u8,
}

const PAGE: usize = 4_096;

impl Edge {
    /// Copies `bytes` so that the last byte is directly before the inaccessible page. The alignment of the first byte
    /// follows from the length.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let used = bytes.len().next_multiple_of(PAGE).max(PAGE);
        let mapped = used + PAGE;
        let (readable, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the mapping is new and only this value has its address. The copy fits in the pages that stay
        // readable.
        unsafe {
            let pages = libc::mmap(ptr::null_mut(), mapped, readable, private, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED, "cannot map {mapped} bytes");
            assert_eq!(libc::mprotect(pages.byte_add(used), PAGE, libc::PROT_NONE), 0);
            let begin = pages.cast::<u8>().add(used - bytes.len());
            ptr::copy_nonoverlapping(bytes.as_ptr(), begin, bytes.len());
            Self { pages, mapped, begin }
        }
    }

    pub(crate) fn pointer(&self) -> *const c_void {
        self.begin.cast_const().cast()
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SAFETY: `pages` and `mapped` are the address and the length of this value's own mapping.
        unsafe { libc::munmap(self.pages, self.mapped) };
    }
}
