//! The append log. One thread writes all waiting batches, syncs once and acknowledges them all.
//!
//! A sync takes milliseconds, so many batches share it (group commit). [`super::log_format`] describes the bytes of a
//! log, [`writer`] its files.

mod stored;
pub mod writer;

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wire::ids::RunId;

use super::StoreError;
use super::losses::Loss;
use super::sealer::Sealer;
use crate::metrics::ServerMetrics;
use crate::vitals::Vitals;
use writer::{Appended, Record, Writer};

/// The shortest time between log messages about a disk that accepts no batches.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// The time after which the file of a silent run is closed; at the latest it is closed after twice this time. Agents of
/// a live run send every two seconds.
const REST_EVERY: Duration = Duration::from_secs(15);
/// The time for which it is known that batches can be stored, or cannot.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// The shortest time between trials because of batches that could not be stored.
const DOUBT_EVERY: Duration = Duration::from_secs(1);
/// The time within which the disk must answer whether batches can be stored.
const PROBED_WITHIN: Duration = Duration::from_secs(2);
/// The largest number of appends that wait for the writer. Each is a frame of at most 4 MiB; a usual frame is 2 KB.
const QUEUE: usize = 1_024;
/// The largest number of requests handled together. All frames of a run among them are written under one sync.
const GROUP: usize = 512;

/// The reason why a batch was not appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The queue is full, and the client may try again.
    #[error("{QUEUE} batches are waiting for the disk: try again")]
    Full,
    /// The disk returned an error. No batch of the group is acknowledged.
    #[error("cannot write the log: {0}")]
    Disk(String),
}

/// A request to the log thread.
enum Request {
    Append(Append),
    /// The run is over. Its log is to be closed and sealed.
    Close(RunId),
    /// Whether batches can be stored is to be said.
    Probe(oneshot::Sender<Result<(), String>>),
    /// Batches that someone removed from the disk are to be found.
    FindLosses(oneshot::Sender<Vec<(RunId, Vec<Loss>)>>),
}

struct Append {
    run: RunId,
    record: Record,
    done: oneshot::Sender<Result<Vec<Loss>, AppendError>>,
}

/// A handle to the log thread. Clones share it.
#[derive(Clone)]
pub struct Log {
    queue: mpsc::SyncSender<Request>,
}

impl Log {
    /// Starts the log thread. Logs that are full, or whose run is over, are passed to the sealer.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        writer: Writer,
        metrics: ServerMetrics,
        sealer: Sealer,
        vitals: &Vitals,
    ) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::sync_channel(QUEUE);
        let thread =
            Thread { writer, metrics, sealer, rested: Instant::now(), complained: None, tried: None };
        vitals.spawn("paceline-log", move || thread.run(&waiting))?;
        Ok(Self { queue })
    }

    /// Appends a batch and returns once it is on disk. Returns earlier batches of the run that were found to be removed from the disk.
    ///
    /// # Errors
    /// Returns the reason ([`AppendError`]) if the batch is not on disk.
    pub async fn append(&self, run: RunId, record: Record) -> Result<Vec<Loss>, AppendError> {
        let (done, synced) = oneshot::channel();
        let append = Request::Append(Append { run, record, done });
        self.queue.try_send(append).map_err(|error| match error {
            mpsc::TrySendError::Full(_) => AppendError::Full,
            mpsc::TrySendError::Disconnected(_) => AppendError::Disk("the log thread has stopped".into()),
        })?;
        synced.await.unwrap_or_else(|_| Err(AppendError::Disk("the log thread has stopped".into())))
    }

    /// Returns the reason why batches of a new run cannot be stored now, if so. To find out, the log does what the first batch of a run
    /// needs, at most every few seconds.
    ///
    /// # Errors
    /// Returns the reason if batches cannot be stored.
    pub async fn can_store(&self) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Request::Probe(reply)).map_err(|_| "too many batches are waiting".to_owned())?;
        match tokio::time::timeout(PROBED_WITHIN, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the log thread has stopped".into()),
            Err(_) => Err(format!("the disk has not answered for {} s", PROBED_WITHIN.as_secs())),
        }
    }

    /// Returns what was removed from the disk since the previous call, also of runs that send nothing.
    pub async fn find_losses(&self) -> Vec<(RunId, Vec<Loss>)> {
        let (reply, answer) = oneshot::channel();
        match self.queue.try_send(Request::FindLosses(reply)) {
            Ok(()) => answer.await.unwrap_or_default(),
            // A busy log finds the losses of the runs that it writes.
            Err(_) => Vec::new(),
        }
    }

    /// Closes the log of a run that is over. A late batch starts a new log.
    pub fn close(&self, run: RunId) {
        // If the queue is full, the log stays open and is sealed at the next start.
        let _left_open = self.queue.try_send(Request::Close(run));
    }
}

struct Thread {
    writer: Writer,
    metrics: ServerMetrics,
    sealer: Sealer,
    /// The time when files of silent runs were last closed.
    rested: Instant,
    /// The time of the last message about a disk that accepts no batches.
    complained: Option<Instant>,
    /// Whether batches of a new run could be stored, and when that was tried.
    tried: Option<(Instant, Result<(), String>)>,
}

impl Thread {
    fn run(mut self, waiting: &mpsc::Receiver<Request>) {
        let _noted = self.can_store();
        while let Some(first) = self.next(waiting) {
            let (mut by_run, mut over) = (BTreeMap::<RunId, Vec<Append>>::new(), Vec::new());
            let (mut probes, mut searches) = (Vec::new(), Vec::new());
            for request in std::iter::once(first).chain(waiting.try_iter().take(GROUP - 1)) {
                match request {
                    Request::Append(append) => by_run.entry(append.run.clone()).or_default().push(append),
                    Request::Close(run) => over.push(run),
                    Request::Probe(reply) => probes.push(reply),
                    Request::FindLosses(reply) => searches.push(reply),
                }
            }
            for (run, group) in by_run {
                self.commit(&run, group);
            }
            over.iter().for_each(|run| self.close(run));
            for reply in probes {
                // A client that disconnected needs no answer.
                let _gone = reply.send(self.can_store());
            }
            for reply in searches {
                let found = self.writer.find_losses();
                found.iter().for_each(|(run, lost)| complain_of_losses(run, lost));
                let _gone = reply.send(found);
            }
        }
    }

    /// Returns whether batches of a new run can be stored. The result of a trial holds for [`PROBE_EVERY`]. Batches of other runs are no evidence: the
    /// directory of one may be damaged, and the log of another may be open while nothing new can be created.
    fn can_store(&mut self) -> Result<(), String> {
        self.writer.check_is_held().map_err(|error| error.to_string())?;
        match &self.tried {
            Some((at, known)) if at.elapsed() < PROBE_EVERY => known.clone(),
            _ => self.try_to_store(),
        }
    }

    /// Tries to store a batch of a new run, and notes whether that can be done.
    fn try_to_store(&mut self) -> Result<(), String> {
        let tried = self.writer.try_to_write().map_err(|error| error.to_string());
        self.metrics.can_store.set(i64::from(tried.is_ok()));
        self.tried = Some((Instant::now(), tried.clone()));
        tried
    }

    /// Finds out whether a batch that could not be stored is a matter of its run, or of all.
    fn doubt(&mut self) {
        if self.tried.as_ref().is_none_or(|(at, _)| at.elapsed() >= DOUBT_EVERY) {
            let _noted = self.try_to_store();
        }
    }

    /// Returns the next request, or `None` once all handles are gone.
    fn next(&mut self, waiting: &mpsc::Receiver<Request>) -> Option<Request> {
        loop {
            if self.rested.elapsed() >= REST_EVERY {
                self.writer.rest();
                self.rested = Instant::now();
            }
            if self.tried.as_ref().is_some_and(|(at, tried)| tried.is_err() && at.elapsed() >= PROBE_EVERY) {
                // What is said of the disk gets better without anyone asking.
                let _noted = self.try_to_store();
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
        let (answer, mut lost) = match outcome {
            Ok(Appended { full, lost }) => {
                full.into_iter().for_each(|full| self.sealer.seal(full));
                complain_of_losses(run, &lost);
                (Ok(()), lost)
            }
            Err(error) => {
                self.complain(&error);
                self.doubt();
                (Err(AppendError::Disk(error.to_string())), Vec::new())
            }
        };
        for done in waiting {
            // A client that disconnected before its answer sends the batch again.
            let _gone = done.send(answer.clone().map(|()| std::mem::take(&mut lost)));
        }
    }

    fn close(&mut self, run: &RunId) {
        match self.writer.close(run) {
            Ok(closed) => closed.into_iter().for_each(|closed| self.sealer.seal(closed)),
            Err(error) => tracing::warn!(%run, %error, "logs of an ended run are sealed at the next start"),
        }
    }

    /// Logs an error, but not for every batch: agents try again and again, and the messages would fill the next disk.
    fn complain(&mut self, error: &StoreError) {
        if self.complained.is_none_or(|last| last.elapsed() >= COMPLAIN_EVERY) {
            self.complained = Some(Instant::now());
            tracing::error!(%error, "cannot make batches durable: agents keep them and try again");
        }
    }
}

fn complain_of_losses(run: &RunId, lost: &[Loss]) {
    for loss in lost {
        tracing::error!(%run, batches = loss.batches, reason = %loss.reason, "stored batches are lost");
    }
}

#[cfg(test)]
mod tests {
    use wire::clock::ServerNanos;

    use super::*;
    use crate::store::directory::Layout;
    use crate::store::log_format as format;

    #[tokio::test]
    async fn an_acknowledged_append_is_on_disk_and_a_restart_begins_a_new_file() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let run = RunId::new("r").unwrap();
        for life in 1..=2_u8 {
            let server = crate::metrics::Metrics::new().server;
            let vitals = Vitals::default();
            let (sealer, _thread) = Sealer::start(layout.clone(), &vitals).unwrap();
            let log = Log::start(Writer::new(layout.clone()), server, sealer, &vitals).unwrap();
            let record = Record { received: ServerNanos(7), frame: vec![life].into(), decoded_bytes: 1 };
            log.append(run.clone(), record).await.unwrap();
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
