//! Reads the stored batches of runs, in the order in which they arrived.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use wire::batch::Note;
use wire::ids::RunId;
use wire::views::{Gap, GapKind};

use super::StoreError;
use super::directory::Layout;
use super::files::Files;
use super::folder::{RunFolder, segment_name};
use super::losses::{self, Loss};
use super::manifest::LogDamage;
use super::segment::Received;

/// The largest number of damaged files that a report names. It counts the rest.
const MAX_NAMED: usize = 5;

/// The condition of a run's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The number of batches in each log, or in the segment made of it.
    pub stored: BTreeMap<u32, u64>,
    /// Acknowledged batches that are lost.
    pub damage: Vec<LogDamage>,
    /// Acknowledged batches that were removed while a server recorded the run, before its files were read.
    pub lost: Vec<Loss>,
    /// Acknowledged batches that were removed since then. They are in memory.
    pub lost_since: Vec<Loss>,
    /// Why the list of removed batches cannot be read.
    pub unlisted: Option<String>,
    /// The number of segments that the manifest does not name, and that are read without checksums.
    pub unnamed: usize,
    /// The numbers of logs that are missing, if the manifest is too: it would say whether they had batches.
    pub skipped: Vec<u32>,
}

impl Condition {
    /// Returns what a report on the run does not cover. `missing` is the number of batches of the ranks that are missing between those
    /// that were read, with a description, if any are.
    #[must_use]
    pub fn gaps(&self, missing: Option<&MissingBatches>) -> Vec<Gap> {
        let named: u64 = self.damage.iter().map(|damage| damage.batches).sum();
        let lost: u64 = self.lost.iter().map(|loss| loss.batches).sum();
        let unnamed = missing.filter(|missing| missing.batches > named + lost);
        let beyond_lost = unnamed.map_or(0, |missing| missing.batches - lost);
        let damaged =
            described(self.damage.iter().map(|damage| (damage.batches, &damage.reason)), beyond_lost);
        // What is missing is what the disk damaged, as far as anyone knows.
        let unnamed = unnamed.filter(|_| damaged.is_none());
        let sentences = [
            damaged.map(|(batches, named)| {
                format!(
                    "the files of at least {batches} are damaged or were removed, and no figure includes what they held ({named}); damaged \
                     files are kept"
                )
            }),
            removed(&self.lost).map(|(removed, them)| format!("{removed}: no figure includes {them}")),
            removed(&self.lost_since).map(|(removed, them)| {
                format!("{removed}: figures include {them} only as long as this server has {them} in memory")
            }),
            unnamed.map(|missing| {
                format!(
                    "{} of {} missing among those that are stored, and no figure includes them: their files were removed, or they never \
                     arrived",
                    batches(missing.batches),
                    if missing.batches == 1 { format!("{} is", missing.owner) } else { format!("{} are", missing.owner) }
                )
            }),
            self.unlisted.as_ref().map(|reason| {
                format!("which batches were removed from the disk before is not known: {reason}")
            }),
            self.skipped(),
        ];
        let batches = sentences.into_iter().flatten().map(|sentence| (GapKind::StoredBatches, sentence));
        let unchecked = self.unchecked().map(|sentence| (GapKind::Checksums, sentence));
        batches.chain(unchecked).map(|(kind, sentence)| Gap { kind, sentence }).collect()
    }

    fn unchecked(&self) -> Option<String> {
        segments(self.unnamed).map(|(segments, them)| {
            format!(
                "manifest.json is missing or does not name {segments}, so that damage to {them} is not detected: it was removed or \
                 replaced"
            )
        })
    }

    fn skipped(&self) -> Option<String> {
        let names = self.skipped.iter().take(MAX_NAMED).map(|&number| segment_name(number));
        let names = names.collect::<Vec<_>>().join(", ");
        let more = self.skipped.len().saturating_sub(MAX_NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (!self.skipped.is_empty()).then(|| {
            format!(
                "{names}{more} may have been removed together with manifest.json, which would say so: no figure includes the batches of \
                 a segment that was"
            )
        })
    }

    /// Returns true if acknowledged batches cannot be read.
    #[must_use]
    pub fn has_lost_batches(&self) -> bool {
        !self.damage.is_empty() || !self.lost.is_empty() || self.unlisted.is_some()
    }

    /// Forgets the losses whose files are back with all that they held, and names no file twice.
    fn forgive(&mut self) {
        let stored = &self.stored;
        let is_back = |loss: &Loss| {
            loss.file.is_some_and(|file| stored.get(&file.number).is_some_and(|&there| there >= file.held))
        };
        self.lost.retain(|loss| !is_back(loss));
        let known = |number| self.lost.iter().any(|loss| loss.file.is_some_and(|file| file.number == number));
        self.skipped.retain(|&number| !known(number));
    }
}

/// Batches that are missing between those that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingBatches {
    /// Their number.
    pub batches: u64,
    /// Whose they are, such as `rank 0`.
    pub owner: String,
}

fn batches(count: u64) -> String {
    format!("{count} {}", if count == 1 { "batch" } else { "batches" })
}

/// Returns a sentence without its end on batches that someone removed, and the pronoun for them; `None` if none were.
fn removed(losses: &[Loss]) -> Option<(String, &'static str)> {
    let (batches, named) = described(losses.iter().map(|loss| (loss.batches, &loss.reason)), 0)?;
    let (were, them) = if batches.starts_with("1 ") { ("was", "it") } else { ("were", "them") };
    let sentence =
        format!("at least {batches} {were} removed from the disk while the run was recorded ({named})");
    Some((sentence, them))
}

/// Returns how many batches are lost, `least` at least, and where; `None` if none are.
fn described<'a>(
    damage: impl ExactSizeIterator<Item = (u64, &'a String)> + Clone,
    least: u64,
) -> Option<(String, String)> {
    let count = damage.len();
    let batches: u64 = damage.clone().map(|(batches, _)| batches).sum::<u64>().max(least);
    let batches = format!("{batches} stored {}", if batches == 1 { "batch" } else { "batches" });
    let named = damage.take(MAX_NAMED).map(|(_, reason)| reason.as_str());
    let named = named.collect::<Vec<_>>().join("; ");
    let more = match count.saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!("; and {more} more files"),
    };
    (count > 0).then_some((batches, named + &more))
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
    pub world_size: u32,
}

/// The number of batches in which the introduction is searched for. Every rank introduces itself in its first batch.
const INTRODUCED_WITHIN: usize = 64;

/// Reads a run's introduction without restoring the run. Returns `None` if its first batches have none.
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
    let (lost, unlisted) = match losses::read(folder) {
        Ok(lost) => (lost, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let (unnamed, skipped) = (files.unnamed(), files.skipped());
    let mut condition = Condition { lost, unlisted, unnamed, skipped, ..Condition::default() };
    for number in files.numbers() {
        let (batches, damage) = files.read(number, None)?;
        condition.damage.extend(damage);
        condition.stored.insert(number, batches.len() as u64);
        batches.into_iter().try_for_each(&mut visit)?;
    }
    condition.forgive();
    Ok(condition)
}

/// The largest number of runs that are read at a time. Each takes up to the memory of a run.
const AT_ONCE: usize = 4;

/// Runs `work` for every run, a few at a time, and passes the results to `visit` in no particular order.
///
/// # Errors
/// Returns an error if the runs cannot be listed.
pub fn visit_runs<T: Send>(
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
