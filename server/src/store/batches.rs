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
use super::losses;
use super::manifest::LogDamage;
use super::segment::Received;

/// The largest number of damaged files that a report names. It counts the rest.
const MAX_NAMED: usize = 5;

/// The condition of a run's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Acknowledged batches that are lost.
    pub damage: Vec<LogDamage>,
    /// Acknowledged batches that were removed while a server recorded the run.
    pub lost: Vec<LogDamage>,
    /// The number of segments without checksums, which an older version wrote.
    pub unchecked: usize,
    /// The number of segments that the manifest does not name, and that are read without checksums.
    pub unnamed: usize,
}

impl Condition {
    /// Returns what a report on the run does not cover.
    #[must_use]
    pub fn to_gaps(&self) -> Vec<Gap> {
        let damaged = described(&self.damage).map(|(batches, named)| {
            format!(
                "the disk damaged at least {batches}, which no figure includes ({named}); the damaged files are kept"
            )
        });
        let lost = described(&self.lost).map(|(batches, named)| {
            format!(
                "at least {batches} were removed from the disk while the run was recorded ({named}): figures include them only as long as \
                 this server has them in memory"
            )
        });
        let unchecked = segments(self.unchecked).map(|(segments, them)| {
            format!("an older version wrote {segments} without checksums: damage to {them} is not detected")
        });
        let unnamed = segments(self.unnamed).map(|(segments, them)| {
            format!(
                "manifest.json is missing or does not name {segments}, so that damage to {them} is not detected: it was removed or \
                 replaced"
            )
        });
        let of_batches =
            [damaged, lost].into_iter().flatten().map(|sentence| (GapKind::StoredBatches, sentence));
        let of_checksums =
            [unchecked, unnamed].into_iter().flatten().map(|sentence| (GapKind::Checksums, sentence));
        of_batches.chain(of_checksums).map(|(kind, sentence)| Gap { kind, sentence }).collect()
    }

    /// Returns true if acknowledged batches cannot be read.
    #[must_use]
    pub fn has_lost_batches(&self) -> bool {
        !self.damage.is_empty() || !self.lost.is_empty()
    }
}

/// Returns how many batches are lost, and where; `None` if none are.
fn described(damage: &[LogDamage]) -> Option<(String, String)> {
    if damage.is_empty() {
        return None;
    }
    let batches: u64 = damage.iter().map(|damage| damage.batches).sum();
    let batches = format!("{batches} stored {}", if batches == 1 { "batch" } else { "batches" });
    let named = damage.iter().take(MAX_NAMED).map(|damage| damage.reason.as_str());
    let named = named.collect::<Vec<_>>().join("; ");
    let more = match damage.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!("; and {more} more files"),
    };
    Some((batches, named + &more))
}

/// Returns a number of segments, and the pronoun for them; `None` for 0.
fn segments(count: usize) -> Option<(String, &'static str)> {
    match count {
        0 => None,
        1 => Some(("1 segment".into(), "it")),
        _ => Some((format!("{count} segments"), "them")),
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
    let mut condition = Condition {
        lost: losses::read(folder)?,
        unchecked: files.unchecked(),
        unnamed: files.unnamed(),
        ..Condition::default()
    };
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
