//! Storage. An acknowledged batch survives `kill -9` at any instant.
//!
//! ```text
//! DATA/
//!   server.json             the server that holds this directory: pid, address, and its clock's base
//!   lock                    locked while a server runs
//!   runs/RUN/
//!     log-000001.plog       batches as they arrived, appended and synced before they are acknowledged
//!     segment-000001/       sealed: batches, steps, spans, buckets, probes (.parquet), notes.json
//!     manifest.json         the segments that count, with checksums; replaced atomically
//!     losses.json           batches that someone removed while the run was recorded; usually absent
//!     captures/             traces of PyTorch's profiler, and what the ranks said about them
//! ```
//!
//! [`log`] appends with group commit. [`sealer`] turns closed logs into Parquet [`segment`]s, which DuckDB, Polars and
//! Spark read too. [`batches`] reads batches back. Log N becomes segment N, so the numbers order logs and segments by
//! time.
//!
//! Unreadable data is never skipped silently: every checksum is verified at every read, a mismatch is reported with the
//! run, and a damaged file stays on disk. Only the torn tail of a run's newest log is cut, when a server starts
//! ([`recovery`]). The torn write was never acknowledged.
//!
//! All files are accessed through [`disk::Disk`], so tests can substitute a faulty disk.

pub mod batches;
pub mod captures;
pub mod directory;
pub mod disk;
pub(crate) mod files;
pub mod folder;
mod local_disk;
pub mod log;
pub mod log_format;
mod log_reader;
pub mod losses;
pub mod manifest;
pub mod recovery;
pub mod sealer;
pub mod segment;
mod signed;

use std::path::{Path, PathBuf};

use wire::ids::Step;

/// A range of steps, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRange {
    pub first: Step,
    pub last: Step,
}

impl StepRange {
    #[must_use]
    pub fn contains(self, step: Step) -> bool {
        self.first <= step && step <= self.last
    }

    /// Returns true if the two ranges have a step in common.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// An error of storage, with the file or directory concerned.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system returned an error.
    #[error("cannot {what} {}: {reason}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation, a verb.
        what: &'static str,
        /// The operating system's error.
        reason: std::io::Error,
    },
    /// Another server holds the directory.
    #[error("{} is in use by the server with pid {pid}{}", path.display(), address.as_ref().map(|a| format!(" at {a}")).unwrap_or_default())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The other server's process id.
        pid: u32,
        /// The other server's address, once it listens.
        address: Option<String>,
    },
    /// A file has invalid content.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl StoreError {
    /// Returns a function that adds the path and the operation to an I/O error.
    pub fn io(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |reason| Self::Io { path, what, reason }
    }

    /// Returns the error of a file with invalid content.
    #[must_use]
    pub fn content(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Content { path: path.to_owned(), reason: reason.to_string() }
    }
}
