//! The places for imports: how many a server makes at a time, and what those who find none free are told.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The number of imports at the same time. Each holds what the device ran in memory ([`super::arriving`]).
const PLACES: usize = 1;

/// The places for imports. Clones share them.
#[derive(Clone)]
pub struct Places {
    free: Arc<Semaphore>,
    progress: Arc<watch::Sender<Progress>>,
}

/// How far the import in progress is.
#[derive(Clone, Debug)]
struct Progress {
    began: Instant,
    /// The size of what has arrived, in bytes.
    bytes: u64,
    /// The file that arrives; `None` before the first and after the last.
    file: Option<String>,
}

impl Progress {
    fn begin() -> Self {
        Self { began: Instant::now(), bytes: 0, file: None }
    }

    fn sentence(&self) -> String {
        let seconds = self.began.elapsed().as_secs();
        let now = match &self.file {
            Some(file) => format!("{file} arrives"),
            None if self.bytes > 0 => "its files have arrived and are read".into(),
            None => "its first file is to come".into(),
        };
        format!(
            "another import is in progress, and this server makes {PLACES} at a time: it began {seconds} s ago, {} of it have \
             arrived, and now {now}. Try again when it is done",
            units::bytes(self.bytes)
        )
    }
}

/// A place for an import. It becomes free when it is dropped.
pub struct Place {
    _taken: OwnedSemaphorePermit,
    progress: Arc<watch::Sender<Progress>>,
}

/// The error that no place is free, with how far the import in progress is.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoPlace(String);

impl Place {
    /// Notes that this many bytes more have arrived.
    pub(super) fn arrive(&self, bytes: usize) {
        self.progress.send_modify(|progress| progress.bytes += bytes as u64);
    }

    /// Notes the file that arrives now.
    pub(super) fn begin_file(&self, file: Option<&str>) {
        self.progress.send_modify(|progress| progress.file = file.map(str::to_owned));
    }
}

impl Default for Places {
    fn default() -> Self {
        let progress = Arc::new(watch::Sender::new(Progress::begin()));
        Self { free: Arc::new(Semaphore::new(PLACES)), progress }
    }
}

impl Places {
    /// Takes a place.
    ///
    /// # Errors
    /// Returns an error if none is free.
    pub fn take(&self) -> Result<Place, NoPlace> {
        let Ok(taken) = self.free.clone().try_acquire_owned() else {
            return Err(NoPlace(self.progress.borrow().sentence()));
        };
        self.progress.send_replace(Progress::begin());
        Ok(Place { _taken: taken, progress: self.progress.clone() })
    }
}
