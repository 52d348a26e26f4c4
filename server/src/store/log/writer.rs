//! The files of the log: appending, syncing and closing.
//!
//! A run has one log that is written to. Its file is open only while the run is busy: the least recently written files
//! are closed, and reopened for the next batch, so the number of open files does not grow with the number of runs.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use bytes::Bytes;
use wire::clock::ServerNanos;
use wire::ids::RunId;

use super::stored::{Stored, readable};
use crate::store::StoreError;
use crate::store::directory::Layout;
use crate::store::disk::{AppendFile, FileState};
use crate::store::folder::RunFolder;
use crate::store::log_format::write_entry;
use crate::store::losses::Loss;
use crate::store::sealer::Closed;

/// The largest number of open files, if the process may open enough. A run that sends while all are in use closes the
/// least recently written file. Reopening that file takes about 20 us, and a sync takes milliseconds.
const MAX_FILES: usize = 128;

/// Returns the number of logs that may have their file open, in a process that may open `files_allowed` files: a
/// quarter of them.
#[must_use]
pub fn most_open(files_allowed: usize) -> usize {
    (files_allowed / 4).clamp(4, MAX_FILES)
}

/// The size at which a log is closed, to be sealed into a segment, and a new log begins, in bytes.
const ROTATE_BYTES: u64 = 16 << 20;
/// The size of decoded batches at which a log is closed, in bytes, however small it is on disk. Sealing and restoring hold one log in
/// memory, and its tables as well.
const ROTATE_DECODED_BYTES: u64 = 64 << 20;

/// A batch to append.
#[derive(Clone, Debug)]
pub struct Record {
    /// The time when the batch arrived.
    pub received: ServerNanos,
    /// The batch's frame.
    pub frame: Bytes,
    /// The size of the batch once it is decoded, in bytes ([`wire::batch::Batch::held_bytes`]).
    pub decoded_bytes: u64,
}

type File = Box<dyn AppendFile>;

/// A log that is written to.
struct OpenLog {
    number: u32,
    /// The offset of the next entry. All bytes before it are complete entries.
    end: u64,
    /// The state of the file after the newest batch.
    state: Option<FileState>,
    /// The size of its batches once they are decoded, in bytes.
    decoded_bytes: u64,
    /// The open file, or `None` while the run is silent.
    file: Option<File>,
    /// The turn in which the log was last written to.
    turn: u64,
}

impl OpenLog {
    /// Returns false if its open file is not at `path` any more, or was cut.
    fn is_whole(&self, path: &Path) -> bool {
        let Some(file) = &self.file else { return true };
        let is_there = file.is_at(path).unwrap_or(true);
        is_there && file.state().is_ok_and(|state| state.length >= self.end)
    }
}

/// What an append leads to, apart from the batches being on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// The log that is full, to be sealed.
    pub full: Option<Closed>,
    /// Earlier batches of the run that someone has removed from the disk. This is on disk, too.
    pub lost: Vec<Loss>,
}

/// Where a group of batches was written.
enum Written {
    /// To the log, which may be full now.
    ToLog(Option<Closed>),
    /// To a file that has lost its name: someone has removed or replaced the log.
    Nowhere,
}

/// How often a batch is written to another log because someone removes the one before.
const TRIES: usize = 2;

/// The logs of all runs that are written to, one per run.
pub struct Writer {
    layout: Layout,
    logs: BTreeMap<RunId, OpenLog>,
    /// What is known to be stored of each run.
    stored: BTreeMap<RunId, Stored>,
    /// The runs whose log has an open file, by the turn in which it was last written to.
    open: BTreeMap<u64, RunId>,
    turn: u64,
    /// The turn of the last call of [`Self::rest`].
    rested: u64,
    most_open: usize,
    rotate_bytes: u64,
}

impl Writer {
    /// Creates a writer without logs.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        let (logs, stored, open) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            layout,
            logs,
            stored,
            open,
            turn: 0,
            rested: 0,
            most_open: MAX_FILES,
            rotate_bytes: ROTATE_BYTES,
        }
    }

    /// Notes what a reader found on disk of a run: the number of batches in each log or segment, and what is lost. What is removed after
    /// that is noticed.
    pub fn knows(&mut self, run: RunId, batches: BTreeMap<u32, u64>, losses: Vec<Loss>) {
        self.stored.insert(run, Stored::new(batches, losses));
    }

    /// Sets the size at which logs are closed.
    #[cfg(test)]
    pub fn rotating_at(self, rotate_bytes: u64) -> Self {
        Self { rotate_bytes, ..self }
    }

    /// Sets the largest number of open files.
    #[must_use]
    pub fn holding_open(self, most_open: usize) -> Self {
        Self { most_open: most_open.max(1), ..self }
    }

    /// Returns the number of open files.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.open.len()
    }

    /// Appends batches of one run and syncs them. If the log is then full, closes it and returns it to be sealed. If logs or segments of
    /// the run were removed, or the log changed since its last batch, returns what is lost.
    ///
    /// # Errors
    /// Returns an error if not all batches are on disk. None of them may then be acknowledged, though some may be on
    /// disk.
    pub fn append(&mut self, run: &RunId, group: &[Record]) -> Result<Appended, StoreError> {
        self.layout.check_is_held()?;
        let folder = self.layout.folder(run);
        for _ in 0..TRIES {
            let (log, file) = self.take(run, &folder)?;
            if let Err(error) = self.stored(run, &folder).compare(&folder) {
                self.put_back(run, log, file);
                return Err(error);
            }
            if let Written::ToLog(full) = self.write(run, &folder, (log, file), group)? {
                return Ok(Appended { full, lost: self.stored(run, &folder).take_untold() });
            }
        }
        Err(StoreError::content(&folder.path, "another program removes the logs in it again and again"))
    }

    /// Returns what is known to be stored of a run.
    fn stored(&mut self, run: &RunId, folder: &RunFolder) -> &mut Stored {
        self.stored.entry(run.clone()).or_insert_with(|| Stored::read(folder))
    }

    /// Writes and syncs batches at the end of a log.
    fn write(
        &mut self,
        run: &RunId,
        folder: &RunFolder,
        (mut log, mut file): (OpenLog, File),
        group: &[Record],
    ) -> Result<Written, StoreError> {
        let path = folder.log(log.number);
        let mut bytes = Vec::new();
        for Record { received, frame, .. } in group {
            let at = log.end + bytes.len() as u64;
            write_entry(&mut bytes, at, *received, frame);
        }
        if let Err(error) = file.append(&bytes) {
            // The disk may be full: the partial write is cut, and the log continues once there is room. A new log for
            // every try would leave thousands of empty files.
            let error = StoreError::io(&path, "append")(error);
            if file.cut(log.end).is_ok() {
                log.state = file.state().ok();
                self.put_back(run, log, file);
            }
            return Err(error);
        }
        if let Err(error) = file.sync() {
            // The content of the file beyond `end` is unknown, and so is the kernel's view of it: the next append
            // begins a new log.
            let error = StoreError::io(&path, "sync")(error);
            let _cut_if_possible = file.cut(log.end).and_then(|()| file.sync());
            self.abandon(run, folder, log.number);
            return Err(error);
        }
        match file.is_at(&path) {
            Ok(true) => {}
            Ok(false) => {
                // Whoever moved the file away finds in it what was acknowledged, and may move it back.
                let _cut_if_possible = file.cut(log.end);
                self.stored(run, folder).suspect(log.number);
                return Ok(Written::Nowhere);
            }
            Err(error) => {
                let _cut_if_possible = file.cut(log.end);
                self.stored(run, folder).suspect(log.number);
                return Err(StoreError::io(&path, "find")(error));
            }
        }
        log.end += bytes.len() as u64;
        log.state = file.state().ok();
        log.decoded_bytes += group.iter().map(|record| record.decoded_bytes).sum::<u64>();
        self.stored(run, folder).add(log.number, group.len() as u64);
        if log.end >= self.rotate_bytes || log.decoded_bytes >= ROTATE_DECODED_BYTES {
            return Ok(Written::ToLog(Some(Closed { run: run.clone(), last: log.number })));
        }
        self.put_back(run, log, file);
        Ok(Written::ToLog(None))
    }

    /// Gives up a log that could not be synced. If no batch was acknowledged into it, its file is removed: otherwise each try would
    /// leave one.
    fn abandon(&mut self, run: &RunId, folder: &RunFolder, number: u32) {
        let stored = self.stored(run, folder);
        if stored.batches(number) == 0 && folder.disk.remove(&folder.log(number)).is_ok() {
            stored.abandoned(number);
        }
    }

    /// Closes the log of a run that is over. Returns the run's newest log, which may be from an earlier server.
    ///
    /// # Errors
    /// Returns an error if the run's directory cannot be listed.
    pub fn close(&mut self, run: &RunId) -> Result<Option<Closed>, StoreError> {
        let last = match self.logs.remove(run) {
            Some(log) => {
                self.open.remove(&log.turn);
                Some(log.number)
            }
            None => self.layout.folder(run).logs()?.pop(),
        };
        Ok(last.map(|last| Closed { run: run.clone(), last }))
    }

    /// Does what the first batch of a new run needs, and undoes it.
    ///
    /// # Errors
    /// Returns an error if no new run could be stored, or if the data directory is no longer the one that this process holds.
    pub fn try_to_write(&self) -> Result<(), StoreError> {
        self.layout.check_is_held()?;
        self.layout.try_to_write()
    }

    /// Checks that the data directory is still the one that this process holds.
    ///
    /// # Errors
    /// Returns an error if it was removed or replaced.
    pub fn check_is_held(&self) -> Result<(), StoreError> {
        self.layout.check_is_held()
    }

    /// Returns what was removed or changed of all runs since the previous call, also of those that send nothing.
    pub fn find_losses(&mut self) -> Vec<(RunId, Vec<Loss>)> {
        if self.check_is_held().is_err() {
            // What is in this place now is not what was stored.
            return Vec::new();
        }
        self.suspect_changed_logs();
        let mut all = Vec::new();
        for (run, stored) in &mut self.stored {
            // A disk that does not answer says nothing. The next call asks again.
            let _unknown = stored.compare_silent(&self.layout.folder(run));
            all.push((run.clone(), stored.take_untold()));
        }
        all.retain(|(_, lost)| !lost.is_empty());
        all
    }

    /// Gives up the open logs that have lost their name or their end. The next batch begins a new log.
    fn suspect_changed_logs(&mut self) {
        let Self { layout, logs, stored, open, .. } = self;
        open.retain(|_, run| {
            let is_whole = logs.get(run).is_none_or(|log| log.is_whole(&layout.folder(run).log(log.number)));
            if !is_whole && let (Some(log), Some(stored)) = (logs.remove(run), stored.get_mut(run)) {
                stored.suspect(log.number);
            }
            is_whole
        });
    }

    /// Closes the files that were not written to since the previous call.
    pub fn rest(&mut self) {
        while let Some((&turn, _)) = self.open.first_key_value()
            && turn <= self.rested
        {
            self.rest_oldest();
        }
        self.rested = self.turn;
    }

    fn rest_oldest(&mut self) {
        if let Some((_, run)) = self.open.pop_first()
            && let Some(log) = self.logs.get_mut(&run)
        {
            log.file = None;
        }
    }

    /// Returns the log of a run with its file open, and creates the log if there is none or if it was removed or changed. The caller [puts it
    /// back](Self::put_back), or drops it so that the next batch begins a new log.
    fn take(&mut self, run: &RunId, folder: &RunFolder) -> Result<(OpenLog, File), StoreError> {
        let Some(mut log) = self.logs.remove(run) else { return self.create(run, folder) };
        self.open.remove(&log.turn);
        match self.open_again(run, folder, &mut log) {
            Ok(Some(file)) => Ok((log, file)),
            Ok(None) => {
                self.stored(run, folder).suspect(log.number);
                self.create(run, folder)
            }
            // The next batch tries again.
            Err(error) => {
                self.logs.insert(run.clone(), log);
                Err(error)
            }
        }
    }

    /// Returns the file of a log. Returns `None` if it was removed, replaced or changed.
    fn open_again(
        &mut self,
        run: &RunId,
        folder: &RunFolder,
        log: &mut OpenLog,
    ) -> Result<Option<File>, StoreError> {
        let path = folder.log(log.number);
        let file = match log.file.take() {
            Some(file) if file.is_at(&path).map_err(StoreError::io(&path, "find"))? => file,
            Some(_) => return Ok(None),
            None => {
                self.make_way();
                match folder.disk.reopen(&path) {
                    Ok(file) => file,
                    Err(error) if is_missing(&error) => return Ok(None),
                    Err(error) => return Err(StoreError::io(&path, "open")(error)),
                }
            }
        };
        let state = file.state().map_err(StoreError::io(&path, "inspect"))?;
        if state.length != log.end {
            return Ok(None);
        }
        // A file of the same length may have another content.
        if log.state.replace(state) != Some(state) {
            let known = self.stored(run, folder).batches(log.number);
            return Ok((readable(folder, log.number) >= known).then_some(file));
        }
        Ok(Some(file))
    }

    /// Closes the least recently written files, so that one more may be opened.
    fn make_way(&mut self) {
        while self.open.len() >= self.most_open {
            self.rest_oldest();
        }
    }

    /// Creates a log durably, with a number that no log or segment of the run has or had.
    fn create(&mut self, run: &RunId, folder: &RunFolder) -> Result<(OpenLog, File), StoreError> {
        self.make_way();
        let disk = folder.disk.as_ref();
        disk.create_folder(&folder.path).map_err(StoreError::io(&folder.path, "create"))?;
        let number = self.stored(run, folder).next_number(folder)?;
        let path = folder.log(number);
        let file = disk.create(&path).map_err(StoreError::io(&path, "create"))?;
        for folder in [Some(folder.path.as_path()), folder.path.parent()].into_iter().flatten() {
            if let Err(error) = disk.sync_folder(folder) {
                // Otherwise each try would leave an empty file.
                let _left_behind = disk.remove(&path);
                return Err(StoreError::io(folder, "sync")(error));
            }
        }
        self.stored(run, folder).created(number);
        let state = file.state().ok();
        Ok((OpenLog { number, end: 0, state, decoded_bytes: 0, file: None, turn: 0 }, file))
    }

    fn put_back(&mut self, run: &RunId, log: OpenLog, file: File) {
        self.turn += 1;
        self.open.insert(self.turn, run.clone());
        self.logs.insert(run.clone(), OpenLog { file: Some(file), turn: self.turn, ..log });
    }
}

/// Returns whether an error says that a file, or the folder that it would be in, is not there.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests;
