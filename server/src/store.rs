//! What is on disk, and the promise that an acknowledged batch survives `kill -9` at any instant.
//!
//! ```text
//! DATA/
//!   server.json             who has this directory: pid, address, and the server clock's base
//!   lock                    locked while a server runs
//!   runs/RUN/
//!     log-000001.plog       batches as they came, appended and synced before they are acknowledged
//!     segment-000001/       sealed: batches, steps, spans, buckets, probes (.parquet), notes.json
//!     manifest.json         which segments count, and their checksums; replaced atomically
//! ```
//!
//! [`log`] appends with group commit; [`sealer`] turns closed logs into Parquet [`segment`]s that DuckDB, Polars
//! or Spark read as well; [`replay`] brings runs back, [`steps`] single steps. Log N becomes segment N, so that numbers
//! order both by time.
//!
//! What cannot be read is never passed over: every checksum is verified at every read, what does not match is
//! reported with the run, and a file with damage stays on disk. Only the torn tail of a run's newest log is cut, by
//! the server that starts ([`recovery`]): that write was never acknowledged.
//!
//! All of it is on a [`disk::Disk`], so that tests can put a faulty one under it.

pub mod directory;
pub mod disk;
mod files;
pub mod folder;
pub mod log;
pub mod manifest;
pub mod recovery;
pub mod replay;
pub mod sealer;
pub mod segment;
mod signed;
#[cfg(test)]
mod simulation;
pub mod steps;

use std::path::{Path, PathBuf};

use wire::ids::Step;

/// Steps from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRange {
    /// The first step.
    pub first: Step,
    /// The last step.
    pub last: Step,
}

impl StepRange {
    /// True for a step in the range.
    #[must_use]
    pub fn contains(self, step: Step) -> bool {
        self.first <= step && step <= self.last
    }

    /// True when the two have a step in common.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// What can go wrong on disk, with the place.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system said no.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What was being done.
        what: &'static str,
        /// What it said.
        source: std::io::Error,
    },
    /// Another server has the directory.
    #[error("{} is in use by the server with pid {pid}{}", path.display(), address.as_ref().map(|a| format!(" at {a}")).unwrap_or_default())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Its pid.
        pid: u32,
        /// Its address, once it listens.
        address: Option<String>,
    },
    /// A file does not hold what it should.
    #[error("{}: {reason}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl StoreError {
    /// Adds the place to an I/O error.
    pub fn io(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, what, source }
    }

    /// A file with wrong content.
    #[must_use]
    pub fn content(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Content { path: path.to_owned(), reason: reason.to_string() }
    }
}
