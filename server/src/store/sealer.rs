//! Turns closed logs into segments, one after another, on a thread of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wire::ids::RunId;

use super::directory::Layout;
use super::folder::{RunFolder, segment_name};
use super::manifest::{Manifest, Sealed};
use super::{StoreError, log_reader, losses, segment};
use crate::vitals::Vitals;

/// The largest number of waiting requests. A request that finds no room is covered by the run's next request, or at the
/// next start.
const QUEUE: usize = 1_024;

/// The time after which logs that could not be sealed are tried again.
const AGAIN_EVERY: Duration = Duration::from_secs(60);

/// Logs of a run that are no longer written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
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
    let (mut later, mut unsealed) = (VecDeque::new(), Unsealed::default());
    loop {
        let request = if later.is_empty() {
            waiting.recv_timeout(AGAIN_EVERY).map_err(|error| match error {
                RecvTimeoutError::Timeout => TryRecvError::Empty,
                RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
            })
        } else {
            waiting.try_recv()
        };
        match request {
            Ok(Request::Seal(closed)) => {
                let (run, last) = (closed.run.clone(), closed.last);
                if seal_one(layout, &closed) {
                    tracing::info!(%run, last, "sealed the logs of this run");
                } else {
                    unsealed.add(closed);
                }
            }
            Ok(Request::Later(more)) => later.extend(more),
            Err(TryRecvError::Empty) => {
                // Not logged: thousands of lines, one per run, would hide all other messages.
                if let Some(closed) = later.pop_front()
                    && !seal_one(layout, &closed)
                {
                    unsealed.add(closed);
                }
            }
            Err(TryRecvError::Disconnected) => return,
        }
        if unsealed.tried_at.elapsed() >= AGAIN_EVERY {
            unsealed.try_again(layout);
        }
    }
}

/// The logs that could not be sealed: the disk may have been full.
struct Unsealed {
    /// The number of the last log of each run.
    last: BTreeMap<RunId, u32>,
    /// When it was last tried to seal them.
    tried_at: Instant,
}

impl Default for Unsealed {
    fn default() -> Self {
        Self { last: BTreeMap::new(), tried_at: Instant::now() }
    }
}

impl Unsealed {
    fn add(&mut self, Closed { run, last }: Closed) {
        let known = self.last.entry(run).or_default();
        *known = last.max(*known);
    }

    /// Tries to seal all of them. Failures were logged the first time.
    fn try_again(&mut self, layout: &Layout) {
        self.last.retain(|run, last| {
            let is_sealed = seal_held(layout, run, *last).is_ok();
            if is_sealed {
                tracing::info!(%run, last, "sealed the logs of this run, which could not be sealed before");
            }
            !is_sealed
        });
        self.tried_at = Instant::now();
    }
}

/// Seals logs. Returns false, with a warning, if a log could not be sealed.
fn seal_one(layout: &Layout, Closed { run, last }: &Closed) -> bool {
    let outcome = seal_held(layout, run, *last);
    if let Err(error) = &outcome {
        tracing::warn!(%run, %error, "cannot seal a log: it stays readable as a log");
    }
    outcome.is_ok()
}

/// Seals logs, unless the data directory was replaced: what is there may be another server's.
fn seal_held(layout: &Layout, run: &RunId, last: u32) -> Result<(), StoreError> {
    layout.check_is_held()?;
    seal(&layout.folder(run), last)
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
                let batches = segment::remove_repetitions(batches);
                let files = segment::write(folder, number, &batches)?;
                let (name, steps) = (segment_name(number), segment::steps(&batches));
                let sealed = Sealed { name, batches: batches.len() as u64, steps, files, damage };
                if manifest.is_absent() {
                    removed_before(folder, number)?.into_iter().for_each(|removed| manifest.put(removed));
                }
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

/// The most segments that are named because their numbers are missing.
const MAX_REMOVED: usize = 1_000;

/// Returns the segments before `number` that someone has removed together with the manifest. Otherwise the new manifest would hide that.
fn removed_before(folder: &RunFolder, number: u32) -> Result<Vec<Sealed>, StoreError> {
    let there = folder.names()?.numbers;
    let lost = losses::read(folder).unwrap_or_default();
    let is_known = |number| lost.iter().any(|loss| loss.file.is_some_and(|file| file.number == number));
    let removed = (1..number).filter(|number| !there.contains(number) && !is_known(*number));
    Ok(removed.take(MAX_REMOVED).map(Sealed::removed).collect())
}

#[cfg(test)]
mod tests {
    use wire::clock::ServerNanos;

    use super::*;
    use crate::store::batches::each_batch;
    use crate::store::log_format::write_entry;

    #[test]
    fn a_log_that_could_not_be_sealed_is_sealed_later() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let run = RunId::new("r").unwrap();
        let folder = layout.folder(&run);
        std::fs::create_dir_all(&folder.path).unwrap();
        let mut log = Vec::new();
        write_entry(&mut log, 0, ServerNanos(1), b"damaged, so that the log stays");
        std::fs::write(folder.log(1), log).unwrap();
        // The manifest cannot be written.
        let obstacle = folder.path.join("manifest.tmp");
        std::fs::create_dir(&obstacle).unwrap();
        let mut unsealed = Unsealed::default();
        unsealed.add(Closed { run: run.clone(), last: 1 });
        unsealed.try_again(&layout);
        assert_eq!(unsealed.last, BTreeMap::from([(run, 1)]));
        std::fs::remove_dir(&obstacle).unwrap();
        unsealed.try_again(&layout);
        assert!(unsealed.last.is_empty() && folder.path.join("manifest.json").exists());
    }

    #[test]
    fn a_new_manifest_names_a_segment_that_was_removed_with_the_old_one() {
        let root = tempfile::tempdir().unwrap();
        let folder = Layout::new(root.path()).folder(&RunId::new("r").unwrap());
        std::fs::create_dir_all(&folder.path).unwrap();
        let mut log = Vec::new();
        write_entry(&mut log, 0, ServerNanos(1), b"damaged, so that the log stays");
        std::fs::write(folder.log(2), log).unwrap();
        seal(&folder, 2).unwrap();
        let condition = each_batch(&folder, |_| Ok::<(), StoreError>(())).unwrap();
        let lost = condition.damage.iter().find(|lost| lost.reason.contains("segment-000001"));
        assert_eq!(lost.map(|lost| lost.batches), Some(1), "{condition:?}");
    }
}
