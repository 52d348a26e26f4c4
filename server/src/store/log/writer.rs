//! What the log does with files: append, sync, close.

use std::collections::BTreeMap;

use bytes::Bytes;
use wire::clock::ServerNanos;
use wire::ids::RunId;

use super::format::write_entry;
use crate::store::StoreError;
use crate::store::directory::Layout;
use crate::store::disk::AppendFile;
use crate::store::folder::RunFolder;
use crate::store::sealer::Closed;

/// A log of this size is closed, to be sealed into a segment, and a new one begun. Sealing and replaying hold one
/// of them in memory, some 100 MB once it is decoded.
const ROTATE_BYTES: u64 = 16 << 20;

/// A batch to append.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it came.
    pub received: ServerNanos,
    /// Its bytes.
    pub frame: Bytes,
}

struct OpenLog {
    file: Box<dyn AppendFile>,
    folder: RunFolder,
    number: u32,
    /// Where the next entry goes: all before it is whole.
    end: u64,
}

/// The open logs of all runs, one a run.
pub struct Writer {
    layout: Layout,
    open: BTreeMap<RunId, OpenLog>,
    rotate_bytes: u64,
}

impl Writer {
    /// Without any open log.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { layout, open: BTreeMap::new(), rotate_bytes: ROTATE_BYTES }
    }

    /// The same with logs of another size.
    #[cfg(test)]
    pub fn rotating_at(self, rotate_bytes: u64) -> Self {
        Self { rotate_bytes, ..self }
    }

    /// Appends batches of one run and syncs them. Returns the log when it is full, closed, to be sealed.
    ///
    /// # Errors
    /// When they are not all on disk. None may be acknowledged then, though some may be found there.
    pub fn append(&mut self, run: &RunId, group: &[Record]) -> Result<Option<Closed>, StoreError> {
        let mut log = match self.open.remove(run) {
            Some(log) => log,
            None => OpenLog::create(self.layout.folder(run))?,
        };
        let mut bytes = Vec::new();
        for Record { received, frame } in group {
            let at = log.end + bytes.len() as u64;
            write_entry(&mut bytes, at, *received, frame);
        }
        if let Err(error) = log.file.append(&bytes) {
            // A disk that is full: what was written of it goes, and this log goes on once there is room. (A new one for
            // every try would leave thousands of empty files.)
            let error = StoreError::io(&log.path(), "append")(error);
            if log.file.cut(log.end).is_ok() {
                self.open.insert(run.clone(), log);
            }
            return Err(error);
        }
        if let Err(error) = log.file.sync() {
            // What is on disk beyond `end` is unknown, and so is what the kernel thinks of it: the next append begins a
            // new log.
            let error = StoreError::io(&log.path(), "sync")(error);
            let _cut_if_possible = log.file.cut(log.end).and_then(|()| log.file.sync());
            return Err(error);
        }
        log.end += bytes.len() as u64;
        if log.end >= self.rotate_bytes {
            return Ok(Some(Closed { run: run.clone(), last: log.number }));
        }
        self.open.insert(run.clone(), log);
        Ok(None)
    }

    /// Closes the log of a run that is over. Returns the newest log there is, which may be of an earlier server.
    ///
    /// # Errors
    /// When the run's directory cannot be listed.
    pub fn close(&mut self, run: &RunId) -> Result<Option<Closed>, StoreError> {
        let last = match self.open.remove(run) {
            Some(log) => Some(log.number),
            None => self.layout.folder(run).logs()?.pop(),
        };
        Ok(last.map(|last| Closed { run: run.clone(), last }))
    }
}

impl OpenLog {
    /// Begins a log with a number that no log or segment of the run has, durably.
    fn create(folder: RunFolder) -> Result<Self, StoreError> {
        let disk = folder.disk.as_ref();
        disk.create_folder(&folder.path).map_err(StoreError::io(&folder.path, "create"))?;
        let number = folder.newest()? + 1;
        let path = folder.log(number);
        let file = disk.create(&path).map_err(StoreError::io(&path, "create"))?;
        for folder in [Some(folder.path.as_path()), folder.path.parent()].into_iter().flatten() {
            if let Err(error) = disk.sync_folder(folder) {
                // Each try would leave an empty file.
                let _left_behind = disk.remove(&path);
                return Err(StoreError::io(folder, "sync")(error));
            }
        }
        Ok(Self { file, folder, number, end: 0 })
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.log(self.number)
    }
}
