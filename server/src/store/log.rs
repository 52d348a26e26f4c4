//! The append log: one thread writes what has come in since its last turn, syncs once, and acknowledges all.
//!
//! One sync takes milliseconds, so many batches share it (group commit). [`mod@format`] describes the bytes of a log,
//! [`writer`] what is done with its files.

pub mod format;
pub mod writer;

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;
use wire::clock::ServerNanos;
use wire::ids::RunId;

use super::folder::{RunFolder, log_name};
use super::manifest::LogDamage;
use super::sealer::Sealer;
use super::segment::Received;
use super::{StepRange, StoreError};
use crate::metrics::ServerMetrics;
use crate::vitals::Vitals;
use format::{Contents, Gap};
use writer::{Record, Writer};

/// How often a disk that does not take batches is complained of.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// Files of runs that said nothing for so long are closed, at the latest after twice this. Agents of a live run send
/// every two seconds.
const REST_EVERY: Duration = Duration::from_secs(15);
/// Appends waiting for the writer: 1,024 frames of at most 4 MiB; usual ones are 2 KB.
const QUEUE: usize = 1_024;
/// Frames written under one sync at most.
const GROUP: usize = 512;

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
    record: Record,
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
    pub fn start(
        writer: Writer,
        metrics: ServerMetrics,
        sealer: Sealer,
        vitals: &Vitals,
    ) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::sync_channel(QUEUE);
        let thread = Thread { writer, metrics, sealer, rested: Instant::now(), complained: None };
        vitals.spawn("paceline-log", move || thread.run(&waiting))?;
        Ok(Self { queue })
    }

    /// Appends a frame; done when it is on disk.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn append(&self, run: RunId, received: ServerNanos, frame: Bytes) -> Result<(), AppendError> {
        let (done, synced) = oneshot::channel();
        let append = Request::Append(Append { run, record: Record { received, frame }, done });
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

/// The writer's thread.
struct Thread {
    writer: Writer,
    metrics: ServerMetrics,
    sealer: Sealer,
    /// When it last closed the files of runs that have nothing to say.
    rested: Instant,
    /// When it last said that the disk does not take batches.
    complained: Option<Instant>,
}

impl Thread {
    fn run(mut self, waiting: &mpsc::Receiver<Request>) {
        while let Some(first) = self.next(waiting) {
            let (mut by_run, mut over) = (BTreeMap::<RunId, Vec<Append>>::new(), Vec::new());
            for request in std::iter::once(first).chain(waiting.try_iter().take(GROUP - 1)) {
                match request {
                    Request::Append(append) => by_run.entry(append.run.clone()).or_default().push(append),
                    Request::Close(run) => over.push(run),
                }
            }
            for (run, group) in by_run {
                self.commit(&run, group);
            }
            over.iter().for_each(|run| self.close(run));
        }
    }

    /// The next request; `None` when there will be none.
    fn next(&mut self, waiting: &mpsc::Receiver<Request>) -> Option<Request> {
        loop {
            if self.rested.elapsed() >= REST_EVERY {
                self.writer.rest();
                self.rested = Instant::now();
            }
            match waiting.recv_timeout(REST_EVERY) {
                Ok(request) => return Some(request),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn commit(&mut self, run: &RunId, group: Vec<Append>) {
        let started = Instant::now();
        let (records, waiting): (Vec<Record>, Vec<_>) =
            group.into_iter().map(|append| (append.record, append.done)).unzip();
        let outcome = self.writer.append(run, &records);
        self.metrics.synced(started.elapsed());
        let answer = match outcome {
            Ok(closed) => {
                closed.into_iter().for_each(|closed| self.sealer.seal(closed));
                Ok(())
            }
            Err(error) => {
                self.complain(&error);
                Err(AppendError::Disk(error.to_string()))
            }
        };
        for done in waiting {
            // A client that went away before its answer will send the batch again.
            let _gone = done.send(answer.clone());
        }
    }

    fn close(&mut self, run: &RunId) {
        match self.writer.close(run) {
            Ok(closed) => closed.into_iter().for_each(|closed| self.sealer.seal(closed)),
            Err(error) => tracing::warn!(%run, %error, "the logs of a run that is over are not sealed now"),
        }
    }

    /// Agents try again and again: said each time, it would fill the next disk.
    fn complain(&mut self, error: &StoreError) {
        if self.complained.is_none_or(|last| last.elapsed() >= COMPLAIN_EVERY) {
            self.complained = Some(Instant::now());
            tracing::error!(%error, "batches cannot be made durable; their agents keep them and try again");
        }
    }
}

/// The batches of log `number`, and the damage that hides others. Only the newest log may end in a torn tail.
///
/// # Errors
/// When the file cannot be read at all.
pub fn read(
    folder: &RunFolder,
    number: u32,
    is_newest: bool,
) -> Result<(Vec<Received>, Option<LogDamage>), StoreError> {
    read_steps(folder, number, is_newest, None)
}

/// The same with only the records of `steps`, if it is not `None` (see [`Received::only`]).
///
/// # Errors
/// As [`read`].
pub fn read_steps(
    folder: &RunFolder,
    number: u32,
    is_newest: bool,
    steps: Option<StepRange>,
) -> Result<(Vec<Received>, Option<LogDamage>), StoreError> {
    let path = folder.log(number);
    let bytes = folder.disk.read(&path).map_err(StoreError::io(&path, "read"))?;
    let Contents { entries, gaps, torn, is_version_1 } = format::read(&bytes);
    let (mut batches, mut damage) = (Vec::new(), Damages::default());
    for Gap { at, bytes } in gaps {
        damage.add(|| format!("{bytes} bytes at {at} do not match their checksum"));
    }
    for entry in entries {
        match wire::codec::decode(&entry.frame) {
            Ok(batch) => batches.extend(Received { at: entry.received, batch }.only(steps)),
            Err(error) => damage.add(|| format!("an entry holds no batch: {error}")),
        }
    }
    // Older programs did not cut torn tails when they started.
    if torn > 0 && !is_newest && !is_version_1 {
        damage.add(|| format!("its last {torn} bytes are the beginning of a batch whose rest is gone"));
    }
    Ok((batches, damage.into_log_damage(number)))
}

/// Counts damage, and describes the first.
#[derive(Default)]
struct Damages {
    count: u64,
    first: String,
}

impl Damages {
    fn add(&mut self, describe: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = describe();
        }
        self.count += 1;
    }

    fn into_log_damage(self, number: u32) -> Option<LogDamage> {
        let Self { count, first } = self;
        let more = if count > 1 { format!(" (and {} more places)", count - 1) } else { String::new() };
        (count > 0)
            .then(|| LogDamage { batches: count, reason: format!("{}: {first}{more}", log_name(number)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::directory::Layout;

    #[tokio::test]
    async fn an_acknowledged_append_is_on_disk_and_a_second_life_begins_a_new_file() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let run = RunId::new("r").unwrap();
        for life in 1..=2_u8 {
            let server = crate::metrics::Metrics::new().server;
            let vitals = Vitals::default();
            let (sealer, _thread) = Sealer::start(layout.clone(), &vitals).unwrap();
            let log = Log::start(Writer::new(layout.clone()), server, sealer, &vitals).unwrap();
            log.append(run.clone(), ServerNanos(7), Bytes::from(vec![life])).await.unwrap();
        }
        let folder = layout.folder(&run);
        let logs = folder.logs().unwrap();
        assert_eq!(logs, [1, 2]);
        let contents =
            logs.iter().map(|&number| format::read(&folder.disk.read(&folder.log(number)).unwrap()));
        let frames: Vec<Vec<u8>> =
            contents.flat_map(|contents| contents.entries).map(|entry| entry.frame).collect();
        assert_eq!(frames, [[1], [2]]);
    }
}
