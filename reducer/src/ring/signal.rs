//! A signal that wakes a thread from `poll`.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A flag that can be polled. It is a pair of sockets, since not every Unix has event descriptors.
pub(super) struct Signal {
    raise: UnixStream,
    seen: UnixStream,
}

impl Signal {
    pub(super) fn new() -> io::Result<Self> {
        let (raise, seen) = UnixStream::pair()?;
        raise.set_nonblocking(true)?;
        seen.set_nonblocking(true)?;
        Ok(Self { raise, seen })
    }

    /// Makes [`Self::fd`] readable until [`Self::clear`].
    pub(super) fn raise(&self) {
        // If the buffer is full, the signal is already raised.
        let _full = (&self.raise).write(&[1]);
    }

    pub(super) fn clear(&self) {
        let mut sink = [0; 64];
        while matches!((&self.seen).read(&mut sink), Ok(read) if read == sink.len()) {}
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.seen.as_fd()
    }
}
