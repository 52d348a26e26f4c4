//! What is on disk, and the promise that an acknowledged batch survives `kill -9` at any instant.
//!
//! ```text
//! DATA/
//!   server.json             who has this directory: pid, address, and the server clock's base
//!   lock                    locked while a server runs
//!   runs/RUN/
//!     log-000001.plog       batches as they came, appended and synced before they are acknowledged
//!     segment-000001/       sealed: steps.parquet spans.parquet buckets.parquet probes.parquet notes.json
//!     manifest.json         which segments count; replaced atomically
//! ```
//!
//! [`log`] appends with group commit; [`sealer`] turns closed logs into Parquet [`segment`]s that DuckDB, Polars
//! or Spark read as well; [`replay`] brings runs back.

pub mod directory;
pub mod log;
pub mod replay;
pub mod sealer;
pub mod segment;

use std::path::{Path, PathBuf};

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
