//! The append log: one thread writes what has come in since its last turn, syncs once, and acknowledges all.
//!
//! One sync takes milliseconds, so many batches share it (group commit). An entry is
//! `length:u32 crc32:u32 received:i64 frame`; the checksum covers time and frame. Reading stops at the first
//! entry that is cut short or does not match: that is where a crash tore the file, and nothing from there on
//! was acknowledged.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;
use wire::clock::ServerNanos;
use wire::ids::RunId;

use super::StoreError;
use super::directory::{Layout, sync_directory};
use super::sealer::{ClosedLog, Sealer};
use crate::metrics::ServerMetrics;

/// How often a disk that does not take batches is complained of.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// Appends waiting for the writer: 1,024 frames of at most 4 MiB; usual ones are 2 KB.
const QUEUE: usize = 1_024;
/// Frames written under one sync at most.
const GROUP: usize = 512;
/// A log of this size is closed, to be sealed into a segment, and a new one begun. Sealing and replaying hold one
/// of them in memory, some 100 MB once it is decoded.
const ROTATE_BYTES: u64 = 16 << 20;
const HEAD_BYTES: usize = 16;

/// Why an append did not come about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The queue is full: come again.
    #[error("the log has {QUEUE} batches waiting for the disk")]
    Full,
    /// The disk said no. Nothing was acknowledged.
    #[error("the log cannot be written: {0}")]
    Disk(String),
}

/// What the writer is asked for.
enum Request {
    Append(Append),
    /// The run is over: its log is closed, to be sealed.
    Close(RunId),
}

struct Append {
    run: RunId,
    received: ServerNanos,
    frame: Bytes,
    done: oneshot::Sender<Result<(), AppendError>>,
}

/// A handle to the log writer; clones share it.
#[derive(Clone)]
pub struct Log {
    queue: mpsc::SyncSender<Request>,
}

impl Log {
    /// Starts the writer thread. Logs that are full, or whose run is over, go to the sealer.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(layout: Layout, metrics: ServerMetrics, sealer: Sealer) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::sync_channel(QUEUE);
        let writer = Writer { layout, metrics, sealer, open: BTreeMap::new(), complained: None };
        std::thread::Builder::new().name("paceline-log".into()).spawn(move || writer.run(&waiting))?;
        Ok(Self { queue })
    }

    /// Appends a frame; done when it is on disk.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn append(&self, run: RunId, received: ServerNanos, frame: Bytes) -> Result<(), AppendError> {
        let (done, synced) = oneshot::channel();
        let append = Request::Append(Append { run, received, frame, done });
        self.queue.try_send(append).map_err(|error| match error {
            mpsc::TrySendError::Full(_) => AppendError::Full,
            mpsc::TrySendError::Disconnected(_) => AppendError::Disk("the writer has stopped".into()),
        })?;
        synced.await.unwrap_or_else(|_| Err(AppendError::Disk("the writer has stopped".into())))
    }

    /// Closes the log of a run that is over. Should a late batch come, a new log is begun.
    pub fn close(&self, run: RunId) {
        // A full queue leaves the log open; it is sealed at the next start.
        let _left_open = self.queue.try_send(Request::Close(run));
    }
}

struct OpenLog {
    file: File,
    path: PathBuf,
    /// Where the next entry goes: all before it is whole.
    end: u64,
}

struct Writer {
    layout: Layout,
    metrics: ServerMetrics,
    sealer: Sealer,
    open: BTreeMap<RunId, OpenLog>,
    /// When it last said that the disk does not take batches.
    complained: Option<Instant>,
}

impl Writer {
    fn run(mut self, waiting: &mpsc::Receiver<Request>) {
        while let Ok(first) = waiting.recv() {
            let (mut by_run, mut over) = (BTreeMap::<RunId, Vec<Append>>::new(), Vec::new());
            for request in std::iter::once(first).chain(waiting.try_iter().take(GROUP - 1)) {
                match request {
                    Request::Append(append) => by_run.entry(append.run.clone()).or_default().push(append),
                    Request::Close(run) => over.push(run),
                }
            }
            for (run, group) in by_run {
                self.commit(run, group);
            }
            over.into_iter().for_each(|run| self.close(run));
        }
    }

    fn close(&mut self, run: RunId) {
        if let Some(OpenLog { path, .. }) = self.open.remove(&run) {
            self.sealer.seal(ClosedLog { run, path });
        }
    }

    fn commit(&mut self, run: RunId, group: Vec<Append>) {
        let started = Instant::now();
        let outcome = self.write(&run, &group);
        self.metrics.synced(started.elapsed());
        let answer = outcome.map_err(|error| AppendError::Disk(error.to_string()));
        if let Err(AppendError::Disk(reason)) = &answer {
            self.complain(reason);
        }
        for append in group {
            // A client that went away before its answer will send the batch again.
            let _gone = append.done.send(answer.clone());
        }
    }

    /// Agents try again and again: said each time, it would fill the next disk.
    fn complain(&mut self, reason: &str) {
        if self.complained.is_none_or(|last| last.elapsed() >= COMPLAIN_EVERY) {
            self.complained = Some(Instant::now());
            tracing::error!(%reason, "batches cannot be made durable; their agents keep them and try again");
        }
    }

    fn write(&mut self, run: &RunId, group: &[Append]) -> Result<(), StoreError> {
        if !self.open.contains_key(run) {
            let opened = open_next(&self.layout.run(run))?;
            self.open.insert(run.clone(), opened);
        }
        let Some(log) = self.open.get_mut(run) else { return Ok(()) };
        let mut bytes = Vec::new();
        group.iter().for_each(|append| write_entry(&mut bytes, append.received, &append.frame));
        if let Err(error) = log.file.write_all(&bytes) {
            // A disk that is full: what was written of it goes, and this log goes on once there is room. (A new one for
            // every try would leave thousands of empty files.)
            let error = StoreError::io(&log.path, "append")(error);
            if log.file.set_len(log.end).is_err() {
                self.open.remove(run);
            }
            return Err(error);
        }
        if let Err(error) = log.file.sync_data() {
            // What the file holds beyond `end` is unknown: the next append opens a new one. A torn tail is found, and
            // left out, on reading.
            let error = StoreError::io(&log.path, "sync")(error);
            let _still_torn = log.file.set_len(log.end);
            self.open.remove(run);
            return Err(error);
        }
        log.end += bytes.len() as u64;
        if log.end >= ROTATE_BYTES {
            self.close(run.clone());
        }
        Ok(())
    }
}

fn write_entry(bytes: &mut Vec<u8>, received: ServerNanos, frame: &[u8]) {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&received.0.to_le_bytes());
    checksum.update(frame);
    bytes.extend_from_slice(&(frame.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&checksum.finalize().to_le_bytes());
    bytes.extend_from_slice(&received.0.to_le_bytes());
    bytes.extend_from_slice(frame);
}

/// Opens a log with a number no log or segment of the run has.
fn open_next(run: &Path) -> Result<OpenLog, StoreError> {
    fs::create_dir_all(run).map_err(StoreError::io(run, "create"))?;
    let next = numbers(run)?.max().unwrap_or(0) + 1;
    let path = run.join(format!("log-{next:06}.plog"));
    let file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .open(&path)
        .map_err(StoreError::io(&path, "create"))?;
    sync_directory(run)?;
    run.parent().map_or(Ok(()), sync_directory)?;
    Ok(OpenLog { file, path, end: 0 })
}

/// The numbers of a run's logs and segments.
fn numbers(run: &Path) -> Result<impl Iterator<Item = u32>, StoreError> {
    let entries = fs::read_dir(run).map_err(StoreError::io(run, "list"))?;
    Ok(entries.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        let name = name.to_str()?;
        let number = name.strip_prefix("log-").or_else(|| name.strip_prefix("segment-"))?;
        number.get(..6)?.parse().ok()
    }))
}

/// The logs of a run, oldest first.
///
/// # Errors
/// When the run's directory cannot be listed.
pub fn logs(run: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = fs::read_dir(run).map_err(StoreError::io(run, "list"))?;
    let mut logs: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "plog"))
        .collect();
    logs.sort();
    Ok(logs)
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When the batch came.
    pub received: ServerNanos,
    /// The batch's frame.
    pub frame: Vec<u8>,
}

/// The whole entries of a log, and how many bytes at its end are torn.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Path) -> Result<(Vec<Entry>, usize), StoreError> {
    let bytes = fs::read(path).map_err(StoreError::io(path, "read"))?;
    let mut entries = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((entry, after)) = read_entry(rest) {
        entries.push(entry);
        rest = after;
    }
    Ok((entries, rest.len()))
}

fn read_entry(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let (length, checksum) = (word(0)? as usize, word(4)?);
    let received = ServerNanos(i64::from_le_bytes(head.get(8..)?.try_into().ok()?));
    let (frame, after) = rest.split_at_checked(length)?;
    let mut found = crc32fast::Hasher::new();
    found.update(&head[8..]);
    found.update(frame);
    (found.finalize() == checksum).then(|| (Entry { received, frame: frame.to_vec() }, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Wherever a crash cuts the file and whatever byte it spoils, what is read is a prefix of what was written.
        #[test]
        fn a_torn_log_is_read_up_to_the_tear(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8),
            cut in any::<prop::sample::Index>(),
            spoiled in prop::option::of((any::<prop::sample::Index>(), 1_u8..)),
        ) {
            let mut bytes = Vec::new();
            let mut ends = Vec::new();
            for (i, frame) in frames.iter().enumerate() {
                write_entry(&mut bytes, ServerNanos(i as i64), frame);
                ends.push(bytes.len());
            }
            let cut = cut.index(bytes.len() + 1);
            bytes.truncate(cut);
            let mut whole = ends.iter().filter(|&&end| end <= cut).count();
            if let Some((at, flip)) = spoiled && !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= flip;
                whole = whole.min(ends.iter().filter(|&&end| end <= at).count());
            }
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log-000001.plog");
            fs::write(&path, &bytes).unwrap();
            let (entries, _torn) = read(&path).unwrap();
            prop_assert_eq!(entries.len(), whole);
            for (entry, frame) in entries.iter().zip(&frames) {
                prop_assert_eq!(&entry.frame, frame);
            }
        }
    }

    #[tokio::test]
    async fn an_acknowledged_append_is_on_disk_and_a_second_life_begins_a_new_file() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let run = RunId::new("r").unwrap();
        for life in 1..=2_u8 {
            let server = crate::metrics::Metrics::new().server;
            let (sealer, _thread) = Sealer::start(layout.clone()).unwrap();
            let log = Log::start(layout.clone(), server, sealer).unwrap();
            log.append(run.clone(), ServerNanos(7), Bytes::from(vec![life])).await.unwrap();
        }
        let paths = logs(&layout.run(&run)).unwrap();
        let frames: Vec<Vec<u8>> =
            paths.iter().flat_map(|path| read(path).unwrap().0).map(|entry| entry.frame).collect();
        assert_eq!(frames, [[1], [2]]);
    }
}
