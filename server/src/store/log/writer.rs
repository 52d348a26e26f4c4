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
use crate::store::folder::{RunFolder, log_name};
use crate::store::log_format::write_entry;
use crate::store::losses;
use crate::store::manifest::LogDamage;
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
    /// The number of its batches.
    batches: u64,
    /// The size of its batches once they are decoded, in bytes.
    decoded_bytes: u64,
    /// The open file, or `None` while the run is silent.
    file: Option<File>,
    /// The turn in which the log was last written to.
    turn: u64,
    /// What was lost with the log before it, until the next batch is written.
    lost: Option<LogDamage>,
}

/// What an append leads to, apart from the batches being on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// The log that is full, to be sealed.
    pub full: Option<Closed>,
    /// Earlier batches of the run that someone has removed from the disk. This is on disk, too.
    pub lost: Option<LogDamage>,
}

/// Where a group of batches was written.
enum Written {
    /// To the log.
    ToLog(Appended),
    /// To a file that has lost its name: someone has removed or replaced the log.
    Nowhere(OpenLog),
}

/// The logs of all runs that are written to, one per run.
pub struct Writer {
    layout: Layout,
    logs: BTreeMap<RunId, OpenLog>,
    /// The number of the newest log of each run. If someone removes a run's directory, its next log must not get the number of one that
    /// waits to be sealed.
    newest: BTreeMap<RunId, u32>,
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
        let (logs, newest, open) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            layout,
            logs,
            newest,
            open,
            turn: 0,
            rested: 0,
            most_open: MAX_FILES,
            rotate_bytes: ROTATE_BYTES,
        }
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

    /// Appends batches of one run and syncs them. If the log is then full, closes it and returns it to be sealed. If the log was
    /// removed or changed since its last batch, begins a new one and returns what is lost.
    ///
    /// # Errors
    /// Returns an error if not all batches are on disk. None of them may then be acknowledged, though some may be on
    /// disk.
    pub fn append(&mut self, run: &RunId, group: &[Record]) -> Result<Appended, StoreError> {
        let folder = self.layout.folder(run);
        let taken = self.take(run, &folder)?;
        let gone = match self.write(run, &folder, taken, group)? {
            Written::ToLog(appended) => return Ok(appended),
            Written::Nowhere(log) => log,
        };
        let new = self.replace(run, &folder, gone)?;
        match self.write(run, &folder, new, group)? {
            Written::ToLog(appended) => Ok(appended),
            Written::Nowhere(log) => {
                let reason = "another program removes this file again and again";
                Err(StoreError::content(&folder.log(log.number), reason))
            }
        }
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
                self.put_back(run, log, file);
            }
            return Err(error);
        }
        if let Err(error) = file.sync() {
            // The content of the file beyond `end` is unknown, and so is the kernel's view of it: the next append
            // begins a new log.
            let error = StoreError::io(&path, "sync")(error);
            let _cut_if_possible = file.cut(log.end).and_then(|()| file.sync());
            return Err(error);
        }
        if !file.is_at(&path).map_err(StoreError::io(&path, "find"))? {
            return Ok(Written::Nowhere(log));
        }
        log.end += bytes.len() as u64;
        log.batches += group.len() as u64;
        log.decoded_bytes += group.iter().map(|record| record.decoded_bytes).sum::<u64>();
        let lost = log.lost.take();
        if log.end >= self.rotate_bytes || log.decoded_bytes >= ROTATE_DECODED_BYTES {
            let full = Some(Closed { run: run.clone(), last: log.number });
            return Ok(Written::ToLog(Appended { full, lost }));
        }
        self.put_back(run, log, file);
        Ok(Written::ToLog(Appended { full: None, lost }))
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

    /// Writes a small file and removes it.
    ///
    /// # Errors
    /// Returns an error if nothing can be written to the data directory, or if it is no longer the one that this process holds.
    pub fn try_to_write(&self) -> Result<(), StoreError> {
        self.layout.check_is_held()?;
        self.layout.try_to_write()
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
            (None, Some(changed)) => self.replace(run, folder, changed),
            _ => self.create(run, folder),
        }
    }

    /// Creates a log in place of one that was removed or changed. Writes down what is lost before any batch is acknowledged. If this
    /// fails, the next batch tries again.
    fn replace(
        &mut self,
        run: &RunId,
        folder: &RunFolder,
        gone: OpenLog,
    ) -> Result<(OpenLog, File), StoreError> {
        let outcome = self.create(run, folder).and_then(|(log, file)| {
            if gone.batches == 0 {
                return Ok((log, file));
            }
            let reason = format!("{} was removed or changed while it was written to", log_name(gone.number));
            let lost = LogDamage { batches: gone.batches, reason };
            losses::add(folder, lost.clone())?;
            Ok((OpenLog { lost: Some(lost), ..log }, file))
        });
        if outcome.is_err() {
            self.logs.insert(run.clone(), OpenLog { file: None, ..gone });
        }
        outcome
    }

    /// Creates a log durably, with a number that no log or segment of the run has or had.
    fn create(&mut self, run: &RunId, folder: &RunFolder) -> Result<(OpenLog, File), StoreError> {
        self.layout.check_is_held()?;
        let disk = folder.disk.as_ref();
        disk.create_folder(&folder.path).map_err(StoreError::io(&folder.path, "create"))?;
        let number = folder.newest()?.max(self.newest.get(run).copied().unwrap_or(0)) + 1;
        let path = folder.log(number);
        let file = disk.create(&path).map_err(StoreError::io(&path, "create"))?;
        for folder in [Some(folder.path.as_path()), folder.path.parent()].into_iter().flatten() {
            if let Err(error) = disk.sync_folder(folder) {
                // Otherwise each try would leave an empty file.
                let _left_behind = disk.remove(&path);
                return Err(StoreError::io(folder, "sync")(error));
            }
        }
        self.newest.insert(run.clone(), number);
        Ok((OpenLog { number, end: 0, batches: 0, decoded_bytes: 0, file: None, turn: 0, lost: None }, file))
    }

    fn put_back(&mut self, run: &RunId, log: OpenLog, file: File) {
        self.turn += 1;
        self.open.insert(self.turn, run.clone());
        self.logs.insert(run.clone(), OpenLog { file: Some(file), turn: self.turn, ..log });
    }
}

/// Reopens the file of a log. Returns `None` if the file was removed or its length has changed.
fn reopen(folder: &RunFolder, number: u32, end: u64) -> Result<Option<File>, StoreError> {
    let path = folder.log(number);
    match folder.disk.reopen(&path) {
        Ok((file, length)) => Ok((length == end).then_some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io(&path, "open")(error)),
    }
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
                assert_eq!(writer.append(run, &[record(round)]).unwrap(), Appended::default());
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
        let full = |writer: &mut Writer| writer.append(&run, from_ref(&half)).unwrap().full;
        assert_eq!(full(&mut writer), None);
        assert_eq!(full(&mut writer), Some(Closed { run: run.clone(), last: 1 }));
        assert_eq!(full(&mut writer), None, "a new log");
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
        let lost = [cut, removed, kept].map(|run| writer.append(run, &[record("c")]).unwrap().lost);
        assert_eq!(
            lost.each_ref().map(|lost| lost.as_ref().map(|lost| lost.batches)),
            [Some(1), Some(1), None]
        );
        let written = |run| losses::read(&layout.folder(run)).unwrap();
        assert_eq!((written(cut), written(kept)), (vec![lost[0].clone().unwrap()], vec![]));
        assert_eq!(frames(&layout, cut), [vec![], vec![b"c".to_vec()]]);
        assert_eq!(frames(&layout, removed), [[b"c"]]);
        assert_eq!(frames(&layout, kept), [[b"a", b"b", b"c"]]);
    }

    #[test]
    fn a_batch_is_never_acknowledged_into_a_file_without_a_name() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let mut writer = Writer::new(layout.clone());
        let [run, ..] = &runs(1)[..] else { unreachable!() };
        writer.append(run, &[record("a"), record("b")]).unwrap();
        std::fs::remove_dir_all(layout.run(run)).unwrap();
        let lost = writer.append(run, &[record("c")]).unwrap().lost.unwrap();
        assert_eq!((lost.batches, lost.reason.starts_with("log-000001.plog was removed")), (2, true));
        assert_eq!(layout.folder(run).logs().unwrap(), [2]);
        // Somewhere else, the file still has a name.
        std::fs::rename(layout.run(run), root.path().join("elsewhere")).unwrap();
        assert_eq!(writer.append(run, &[record("d")]).unwrap().lost.unwrap().batches, 1);
        assert_eq!(frames(&layout, run), [[b"d"]]);
    }
}
