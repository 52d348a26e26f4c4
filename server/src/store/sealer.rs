//! Turns closed logs into segments, one after another, on a thread of its own.

use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use wire::ids::RunId;

use super::directory::Layout;
use super::folder::{RunFolder, segment_name};
use super::manifest::{Manifest, Sealed};
use super::{StoreError, log_reader, segment};
use crate::vitals::Vitals;

/// The largest number of waiting requests. A request that finds no room is covered by the run's next request, or at the
/// next start.
const QUEUE: usize = 1_024;

/// Logs of a run that are no longer written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The run.
    pub run: RunId,
    /// The number of the last log. It stands for all logs up to this number.
    pub last: u32,
}

/// A handle to the sealer thread. The thread ends when the last handle is dropped.
#[derive(Clone)]
pub struct Sealer {
    queue: SyncSender<Request>,
}

enum Request {
    Seal(Closed),
    /// Logs to seal when there is nothing else to do.
    Later(Vec<Closed>),
}

impl Sealer {
    /// Starts the sealer thread. The thread ends after the last [`Sealer`] is dropped and the waiting requests are
    /// done.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(layout: Layout, vitals: &Vitals) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (queue, waiting) = sync_channel(QUEUE);
        let handle = vitals.spawn("paceline-seal", move || seal_all(&layout, &waiting))?;
        Ok((Self { queue }, handle))
    }

    /// Queues logs of runs that ended under an earlier server. They are sealed when there is nothing else to do.
    pub fn seal_later(&self, closed: Vec<Closed>) {
        if let Err(error) = self.queue.try_send(Request::Later(closed)) {
            tracing::warn!(%error, "cannot queue logs for sealing: they are sealed at the next start");
        }
    }

    /// Queues logs to be sealed. Never waits.
    pub fn seal(&self, closed: Closed) {
        if let Err(error) = self.queue.try_send(Request::Seal(closed)) {
            tracing::warn!(%error, "cannot queue logs for sealing: they are sealed at the next start");
        }
    }
}

/// Seals logs until the last handle is dropped. Logs that are still queued for later are then sealed at the next start.
fn seal_all(layout: &Layout, waiting: &Receiver<Request>) {
    let mut later = VecDeque::new();
    loop {
        let request = if later.is_empty() {
            waiting.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            waiting.try_recv()
        };
        match request {
            Ok(Request::Seal(closed)) => {
                let (run, last) = (closed.run.clone(), closed.last);
                if seal_one(layout, closed) {
                    tracing::info!(%run, last, "sealed the logs of this run");
                }
            }
            Ok(Request::Later(more)) => later.extend(more),
            Err(TryRecvError::Empty) => {
                // Not logged: thousands of lines, one per run, would hide all other messages.
                if let Some(closed) = later.pop_front() {
                    seal_one(layout, closed);
                }
            }
            Err(TryRecvError::Disconnected) => return,
        }
    }
}

/// Seals logs. Returns false, with a warning, if a log could not be sealed.
fn seal_one(layout: &Layout, Closed { run, last }: Closed) -> bool {
    let outcome = seal(&layout.folder(&run), last);
    if let Err(error) = &outcome {
        tracing::warn!(%run, %error, "cannot seal a log: it stays readable as a log");
    }
    outcome.is_ok()
}

/// Seals every log of a run up to number `last`. A log that cannot be sealed does not prevent others from being sealed.
///
/// Sealing can be interrupted at any point and repeated. A segment counts once the manifest names it, and its log is
/// removed only after the segment was read back. A damaged log is never removed.
///
/// # Errors
/// Returns the first error. The logs concerned are still on disk.
pub fn seal(folder: &RunFolder, last: u32) -> Result<(), StoreError> {
    let logs: BTreeSet<u32> = folder.logs()?.into_iter().filter(|&number| number <= last).collect();
    let outcomes: Vec<Result<(), StoreError>> =
        logs.into_iter().map(|number| seal_log(folder, number)).collect();
    outcomes.into_iter().collect()
}

fn seal_log(folder: &RunFolder, number: u32) -> Result<(), StoreError> {
    let mut manifest = Manifest::read(folder)?;
    let readable = manifest.find(number).filter(|sealed| segment::read(folder, sealed).is_ok());
    let is_damaged = match readable {
        Some(sealed) => sealed.damage.is_some(),
        None => {
            let (batches, damage) = log_reader::read(folder, number, false)?;
            let is_damaged = damage.is_some();
            if !is_damaged && batches.is_empty() && manifest.is_absent() {
                // Without a manifest, a number without a file would mean that someone removed it.
                return Ok(());
            }
            if is_damaged || !batches.is_empty() {
                let batches = segment::without_repetitions(batches);
                let files = segment::write(folder, number, &batches)?;
                let (name, steps) = (segment_name(number), segment::steps(&batches));
                let sealed = Sealed { name, batches: batches.len() as u64, steps, files, damage };
                manifest.put(sealed.clone());
                manifest.write(folder)?;
                // Otherwise the batches would be in memory twice while they are read back.
                drop(batches);
                segment::read(folder, &sealed)?;
            }
            is_damaged
        }
    };
    if is_damaged {
        return Ok(());
    }
    let path = folder.log(number);
    folder.disk.remove(&path).map_err(StoreError::io(&path, "remove"))
}
