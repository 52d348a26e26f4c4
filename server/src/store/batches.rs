//! Reads the stored batches of runs, in the order in which they arrived.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use wire::batch::Note;
use wire::ids::RunId;
use wire::views::{Gap, GapKind};

use super::StoreError;
use super::directory::Layout;
use super::files::Files;
use super::folder::RunFolder;
use super::manifest::LogDamage;
use super::segment::Received;

/// The largest number of damaged files that a report names. It counts the rest.
const MAX_NAMED: usize = 5;

/// The condition of a run's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Acknowledged batches that are lost.
    pub damage: Vec<LogDamage>,
    /// The number of segments without checksums, which an older version wrote.
    pub unchecked: usize,
}

impl Condition {
    /// Returns what a report on the run does not cover.
    #[must_use]
    pub fn to_gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        if !self.damage.is_empty() {
            let batches: u64 = self.damage.iter().map(|damage| damage.batches).sum();
            let named = self.damage.iter().take(MAX_NAMED).map(|damage| damage.reason.as_str());
            let named = named.collect::<Vec<_>>().join("; ");
            let more = match self.damage.len().saturating_sub(MAX_NAMED) {
                0 => String::new(),
                more => format!("; and {more} more files"),
            };
            gaps.push(Gap {
                kind: GapKind::StoredBatches,
                sentence: format!(
                    "the disk damaged at least {batches} stored {}, which no figure includes ({named}{more}); \
                     the damaged files are kept",
                    if batches == 1 { "batch" } else { "batches" }
                ),
            });
        }
        if self.unchecked > 0 {
            gaps.push(Gap {
                kind: GapKind::Checksums,
                sentence: format!(
                    "an older version wrote {} without checksums: damage to {} is not detected",
                    if self.unchecked == 1 {
                        "1 segment".into()
                    } else {
                        format!("{} segments", self.unchecked)
                    },
                    if self.unchecked == 1 { "it" } else { "them" },
                ),
            });
        }
        gaps
    }
}

/// The description of a run in its first hello message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// The run's name. Runs of one name are compared with each other.
    pub name: String,
    /// The world size.
    pub world_size: u32,
}

/// The number of batches in which the introduction is searched for. Every rank introduces itself in its first batch.
const INTRODUCED_WITHIN: usize = 64;

/// Reads a run's introduction without replaying the run. Returns `None` if its first batches have none.
///
/// # Errors
/// Returns an error if the run's files cannot be read or have invalid content.
pub fn introduction(layout: &Layout, id: &RunId) -> Result<Option<Introduction>, StoreError> {
    enum Found {
        Introduction(Option<Introduction>),
        Failed(StoreError),
    }
    impl From<StoreError> for Found {
        fn from(error: StoreError) -> Self {
            Self::Failed(error)
        }
    }
    let mut seen = 0;
    let looked = each_batch(&layout.folder(id), |Received { batch, .. }| {
        seen += 1;
        let hello = batch.notes.iter().find_map(|note| match note {
            Note::Hello(hello) => Some(hello.name.clone()),
            _ => None,
        });
        match hello {
            Some(name) => Err(Found::Introduction(Some(Introduction { name, world_size: batch.world_size }))),
            None if seen == INTRODUCED_WITHIN => Err(Found::Introduction(None)),
            None => Ok(()),
        }
    });
    match looked {
        Ok(_) => Ok(None),
        Err(Found::Introduction(found)) => Ok(found),
        Err(Found::Failed(error)) => Err(error),
    }
}

/// Passes the batches of a run to `visit` in the order of their arrival. A batch that was stored twice is passed twice.
///
/// # Errors
/// Returns an error if the run's files cannot be listed or its manifest cannot be read, or the error of `visit`.
pub fn each_batch<E: From<StoreError>>(
    folder: &RunFolder,
    mut visit: impl FnMut(Received) -> Result<(), E>,
) -> Result<Condition, E> {
    let mut files = Files::list(folder)?;
    let mut condition = Condition { damage: Vec::new(), unchecked: files.unchecked() };
    for number in files.numbers() {
        let (batches, damage) = files.read(number, None)?;
        condition.damage.extend(damage);
        batches.into_iter().try_for_each(&mut visit)?;
    }
    Ok(condition)
}

/// The largest number of runs that are read at a time. Each takes up to the memory of a run.
const AT_ONCE: usize = 4;

/// Runs `work` for every run, a few at a time, and passes the results to `visit` in no particular order.
///
/// # Errors
/// Returns an error if the runs cannot be listed.
pub fn each<T: Send>(
    layout: &Layout,
    work: impl Fn(&RunId) -> T + Sync,
    mut visit: impl FnMut(T),
) -> Result<(), StoreError> {
    let ids = layout.runs()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(AT_ONCE).min(ids.len());
    let (next, work) = (AtomicUsize::new(0), &work);
    std::thread::scope(|scope| {
        // No result waits beside those that the threads hold, because each may be as large as a run.
        let (done, results) = sync_channel(0);
        for _ in 0..threads {
            let (done, ids, next) = (done.clone(), &ids, &next);
            scope.spawn(move || {
                while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if done.send(work(id)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        results.into_iter().for_each(&mut visit);
    });
    Ok(())
}
