//! The files of the log: appending, syncing and closing.
//!
//! A run has one log that is written to. Its file is open only while the run is busy: the least recently written files
//! are closed, and reopened for the next batch, so the number of open files does not grow with the number of runs.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use bytes::Bytes;
use wire::clock::ServerNanos;
use wire::ids::RunId;

use crate::store::StoreError;
use crate::store::directory::Layout;
use crate::store::disk::AppendFile;
use crate::store::folder::RunFolder;
use crate::store::log_format::write_entry;
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
/// The size of decoded batches at which a log is closed, in bytes, however small it is on disk. Sealing and replaying hold one log in
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
    /// The size of its batches once they are decoded, in bytes.
    decoded_bytes: u64,
    /// The open file, or `None` while the run is silent.
    file: Option<File>,
    /// The turn in which the log was last written to.
    turn: u64,
}

/// The logs of all runs that are written to, one per run.
pub struct Writer {
    layout: Layout,
    logs: BTreeMap<RunId, OpenLog>,
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
        let (logs, open) = (BTreeMap::new(), BTreeMap::new());
        Self { layout, logs, open, turn: 0, rested: 0, most_open: MAX_FILES, rotate_bytes: ROTATE_BYTES }
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

    /// Appends batches of one run and syncs them. If the log is then full, closes it and returns it to be sealed.
    ///
    /// # Errors
    /// Returns an error if not all batches are on disk. None of them may then be acknowledged, though some may be on
    /// disk.
    pub fn append(&mut self, run: &RunId, group: &[Record]) -> Result<Option<Closed>, StoreError> {
        let folder = self.layout.folder(run);
        let (mut log, mut file) = self.take(run, &folder)?;
        let mut bytes = Vec::new();
        for Record { received, frame, .. } in group {
            let at = log.end + bytes.len() as u64;
            write_entry(&mut bytes, at, *received, frame);
        }
        if let Err(error) = file.append(&bytes) {
            // The disk may be full: the partial write is cut, and the log continues once there is room. A new log for
            // every try would leave thousands of empty files.
            let error = StoreError::io(&folder.log(log.number), "append")(error);
            if file.cut(log.end).is_ok() {
                self.put_back(run, log, file);
            }
            return Err(error);
        }
        if let Err(error) = file.sync() {
            // The content of the file beyond `end` is unknown, and so is the kernel's view of it: the next append
            // begins a new log.
            let error = StoreError::io(&folder.log(log.number), "sync")(error);
            let _cut_if_possible = file.cut(log.end).and_then(|()| file.sync());
            return Err(error);
        }
        log.end += bytes.len() as u64;
        log.decoded_bytes += group.iter().map(|record| record.decoded_bytes).sum::<u64>();
        if log.end >= self.rotate_bytes || log.decoded_bytes >= ROTATE_DECODED_BYTES {
            return Ok(Some(Closed { run: run.clone(), last: log.number }));
        }
        self.put_back(run, log, file);
        Ok(None)
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

    /// Returns the log of a run with its file open, and creates the log if there is none. The caller [puts it
    /// back](Self::put_back), or drops it so that the next batch begins a new log.
    fn take(&mut self, run: &RunId, folder: &RunFolder) -> Result<(OpenLog, File), StoreError> {
        if let Some(file) = self.logs.get_mut(run).and_then(|log| log.file.take())
            && let Some(log) = self.logs.remove(run)
        {
            self.open.remove(&log.turn);
            return Ok((log, file));
        }
        while self.open.len() >= self.most_open {
            self.rest_oldest();
        }
        let known = self.logs.get(run).map(|log| (log.number, log.end));
        let reopened = known.map_or(Ok(None), |(number, end)| reopen(folder, number, end))?;
        match (reopened, self.logs.remove(run)) {
            (Some(file), Some(log)) => Ok((log, file)),
            _ => create(folder),
        }
    }

    fn put_back(&mut self, run: &RunId, log: OpenLog, file: File) {
        self.turn += 1;
        self.open.insert(self.turn, run.clone());
        self.logs.insert(run.clone(), OpenLog { file: Some(file), turn: self.turn, ..log });
    }
}

/// Reopens the file of a log. Returns `None` if the file was removed or its length has changed. The run then gets a new
/// log.
fn reopen(folder: &RunFolder, number: u32, end: u64) -> Result<Option<File>, StoreError> {
    let path = folder.log(number);
    match folder.disk.reopen(&path) {
        Ok((file, length)) => Ok((length == end).then_some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io(&path, "open")(error)),
    }
}

/// Creates a log durably, with a number that no log or segment of the run has.
fn create(folder: &RunFolder) -> Result<(OpenLog, File), StoreError> {
    let disk = folder.disk.as_ref();
    disk.create_folder(&folder.path).map_err(StoreError::io(&folder.path, "create"))?;
    let number = folder.newest()? + 1;
    let path = folder.log(number);
    let file = disk.create(&path).map_err(StoreError::io(&path, "create"))?;
    for folder in [Some(folder.path.as_path()), folder.path.parent()].into_iter().flatten() {
        if let Err(error) = disk.sync_folder(folder) {
            // Otherwise each try would leave an empty file.
            let _left_behind = disk.remove(&path);
            return Err(StoreError::io(folder, "sync")(error));
        }
    }
    Ok((OpenLog { number, end: 0, decoded_bytes: 0, file: None, turn: 0 }, file))
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::store::log_format as format;

    fn record(text: &str) -> Record {
        Record { received: ServerNanos(1), frame: Bytes::copy_from_slice(text.as_bytes()), decoded_bytes: 1 }
    }

    fn runs(count: usize) -> Vec<RunId> {
        (0..count).map(|run| RunId::new(format!("r{run}")).unwrap()).collect()
    }

    /// Returns the frames in each log of a run.
    fn frames(layout: &Layout, run: &RunId) -> Vec<Vec<Vec<u8>>> {
        let folder = layout.folder(run);
        let read = |number| format::read(&folder.disk.read(&folder.log(number)).unwrap());
        let frames = |number| read(number).entries.into_iter().map(|entry| entry.frame).collect();
        folder.logs().unwrap().into_iter().map(frames).collect()
    }

    #[test]
    fn many_runs_share_few_open_files_and_each_continues_its_log() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let mut writer = Writer::new(layout.clone()).holding_open(3);
        let runs = runs(10);
        for round in ["a", "b", "c"] {
            for run in &runs {
                assert_eq!(writer.append(run, &[record(round)]).unwrap(), None);
                assert!(writer.open_files() <= 3);
            }
        }
        for run in &runs {
            assert_eq!(frames(&layout, run), [[b"a", b"b", b"c"]], "{run}");
            assert_eq!(writer.close(run).unwrap(), Some(Closed { run: run.clone(), last: 1 }));
        }
        assert_eq!((writer.open_files(), writer.logs.len()), (0, 0));
    }

    #[test]
    fn a_log_is_closed_when_its_batches_are_large_once_they_are_decoded() {
        let root = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(Layout::new(root.path()));
        let run = RunId::new("r").unwrap();
        let half = Record { decoded_bytes: ROTATE_DECODED_BYTES / 2, ..record("a") };
        assert_eq!(writer.append(&run, from_ref(&half)).unwrap(), None);
        assert_eq!(writer.append(&run, from_ref(&half)).unwrap(), Some(Closed { run: run.clone(), last: 1 }));
        assert_eq!(writer.append(&run, from_ref(&half)).unwrap(), None, "a new log");
    }

    #[test]
    fn a_log_whose_length_changed_while_closed_is_not_appended_to() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let mut writer = Writer::new(layout.clone());
        let [cut, removed, kept] = &runs(3)[..] else { unreachable!() };
        for run in [cut, removed, kept] {
            writer.append(run, &[record("a")]).unwrap();
        }
        writer.rest();
        assert_eq!(writer.open_files(), 3, "all were written to since the last call");
        writer.append(kept, &[record("b")]).unwrap();
        writer.rest();
        assert_eq!(writer.open_files(), 1);
        let log = |run| layout.folder(run).log(1);
        std::fs::write(log(cut), b"").unwrap();
        std::fs::remove_file(log(removed)).unwrap();
        for run in [cut, removed, kept] {
            writer.append(run, &[record("c")]).unwrap();
        }
        assert_eq!(frames(&layout, cut), [vec![], vec![b"c".to_vec()]]);
        assert_eq!(frames(&layout, removed), [[b"c"]]);
        assert_eq!(frames(&layout, kept), [[b"a", b"b", b"c"]]);
    }
}
