//! Sealed segments: the batches of a log as Parquet, lossless, readable by any Parquet reader.
//!
//! Every column is INT64, delta-encoded and zstd-compressed. Rows of the table of batches are in order of arrival. In
//! the other tables the rows of one incarnation are adjacent, in order of arrival. Times are nanoseconds on the rank's
//! own clock, and a bucket's launch, start and end are relative to the time before. The pair (`life`, `batch`)
//! identifies the batch of a row, so that restoring a segment is restoring its batches. `life` is the index of the
//! incarnation. Of the `Started` records, only the newest of each incarnation is stored, and only if its collective had
//! not ended: bucket records supersede all others.
//!
//! The [manifest](super::manifest) has a checksum of every file. A file is decoded only after it matches, because the
//! Parquet reader is not made for damaged files.

mod rebuilt;
mod table;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde::{Deserialize, Serialize};
use wire::batch::{Batch, Drop, Note};
use wire::clock::ServerNanos;
use wire::event::{Event, Started};
use wire::ids::{Incarnation, Rank, RunId, Seq};

use super::folder::RunFolder;
use super::manifest::{FileSum, Sealed};
use super::{StepRange, StoreError, signed};
use rebuilt::Rebuilt;
use table::Table;
use tables::{BATCHES, BUCKETS, PROBES, SPANS, STEPS, Tables};

/// A batch and the time of its arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The time of arrival.
    pub at: ServerNanos,
    pub batch: Batch,
}

impl Received {
    /// Reduces the batch to the records of `steps`. Returns `None` if there are none, and the whole batch if `steps` is
    /// `None`.
    #[must_use]
    pub fn only(mut self, steps: Option<StepRange>) -> Option<Self> {
        let Some(steps) = steps else { return Some(self) };
        let Batch { notes, probes, drops, events, .. } = &mut self.batch;
        (*notes, *probes, *drops) = (Vec::new(), Vec::new(), Vec::new());
        events.retain(|event| is_kept(event) && steps.contains(event.step()));
        events.shrink_to_fit();
        (!self.batch.events.is_empty()).then_some(self)
    }
}

/// Returns whether an event is stored as a row. `Started` records are superseded by bucket records.
fn is_kept(event: &Event) -> bool {
    !matches!(event, Event::Started(_))
}

/// Returns the first and the last step that `batches` have a record of.
#[must_use]
pub fn steps(batches: &[Received]) -> Option<(u64, u64)> {
    let events = batches.iter().flat_map(|received| &received.batch.events).filter(|event| is_kept(event));
    let all = events.map(|event| event.step().0);
    all.fold(None, |range, step| {
        Some(range.map_or((step, step), |(first, last): (u64, u64)| (first.min(step), last.max(step))))
    })
}

/// An incarnation of a rank, with the world size in its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Life {
    rank: Rank,
    incarnation: Incarnation,
    world_size: u32,
}

/// The content of `notes.json`: the parts of a segment that are not tables.
#[derive(Debug, Serialize, Deserialize)]
struct NotesFile {
    version: u32,
    run: RunId,
    lives: Vec<Life>,
    notes: Vec<BatchNotes>,
    in_flight: Vec<InFlight>,
}

#[derive(Debug, Serialize, Deserialize)]
struct BatchNotes {
    life: usize,
    batch: u64,
    notes: Vec<Note>,
    drops: Vec<Drop>,
}

/// The newest collective that an incarnation had launched when the segment ended: where it hangs or was killed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct InFlight {
    life: usize,
    batch: u64,
    started: Started,
}

const NOTES: &str = "notes.json";
/// The version of a segment's files, which `notes.json` states.
const VERSION: u32 = 1;

/// Removes duplicate batches. An agent that receives no answer sends a batch again.
#[must_use]
pub fn remove_repetitions(batches: Vec<Received>) -> Vec<Received> {
    let mut known = BTreeSet::new();
    let mut batches = batches;
    batches.retain(|Received { batch, .. }| {
        known.insert((batch.rank, batch.incarnation, batch.seq, batch.world_size))
    });
    batches
}

/// Writes `batches` as segment `number` and makes it durable. Returns the size and checksum of each file. The batches
/// must not contain duplicates (see [`remove_repetitions`]).
///
/// # Errors
/// Returns an error if a file cannot be encoded, written or synced.
pub fn write(
    folder: &RunFolder,
    number: u32,
    batches: &[Received],
) -> Result<BTreeMap<String, FileSum>, StoreError> {
    let path = folder.segment(number);
    let disk = folder.disk.as_ref();
    disk.create_folder(&path).map_err(StoreError::io(&path, "create"))?;
    let (tables, notes) = encode(&folder.run, batches);
    let notes = serde_json::to_vec(&notes).map_err(|error| StoreError::content(&path.join(NOTES), error))?;
    let tables = tables.encode().map_err(|error| StoreError::content(&path, error))?;
    let mut sums = BTreeMap::new();
    for (name, content) in tables.into_iter().chain([(NOTES, notes)]) {
        let file = path.join(name);
        disk.write(&file, &content).map_err(StoreError::io(&file, "write"))?;
        sums.insert(name.to_owned(), FileSum::new(&content));
    }
    for folder in [&path, &folder.path] {
        disk.sync_folder(folder).map_err(StoreError::io(folder, "sync"))?;
    }
    Ok(sums)
}

fn encode(run: &RunId, batches: &[Received]) -> (Tables, NotesFile) {
    let mut lives: BTreeMap<Life, usize> = BTreeMap::new();
    let mut in_order = Vec::new();
    let mut tables = Tables::default();
    let mut notes = Vec::new();
    let mut newest: BTreeMap<usize, Newest> = BTreeMap::new();
    for Received { at, batch } in batches {
        let Batch { rank, incarnation, world_size, .. } = *batch;
        let life = Life { rank, incarnation, world_size };
        let life = *lives.entry(life).or_insert_with(|| {
            in_order.push(life);
            in_order.len() - 1
        });
        tables.push(*at, batch, life as i64);
        if !batch.notes.is_empty() || !batch.drops.is_empty() {
            let (notes_of, drops) = (batch.notes.clone(), batch.drops.clone());
            notes.push(BatchNotes { life, batch: batch.seq.0, notes: notes_of, drops });
        }
        newest.entry(life).or_default().add(life, batch);
    }
    tables.group();
    let in_flight = newest.values().filter_map(Newest::in_flight).collect();
    (tables, NotesFile { version: VERSION, run: run.clone(), lives: in_order, notes, in_flight })
}

/// The newest started and the newest ended collective of an incarnation.
#[derive(Default)]
struct Newest {
    started: Option<InFlight>,
    ended: Option<Seq>,
}

impl Newest {
    fn add(&mut self, life: usize, batch: &Batch) {
        for event in &batch.events {
            match *event {
                Event::Started(started) => {
                    if self.started.is_none_or(|newest| newest.started.seq < started.seq) {
                        self.started = Some(InFlight { life, batch: batch.seq.0, started });
                    }
                }
                Event::Bucket(bucket) => self.ended = self.ended.max(Some(bucket.seq)),
                Event::Step(_) | Event::Span(_) => {}
            }
        }
    }

    fn in_flight(&self) -> Option<InFlight> {
        self.started.filter(|newest| self.ended < Some(newest.started.seq))
    }
}

/// Reads the batches of a segment, in order of arrival.
///
/// # Errors
/// Returns an error if a file is missing, does not match its checksum, or has content that [`write`] does not write.
pub fn read(folder: &RunFolder, sealed: &Sealed) -> Result<Vec<Received>, StoreError> {
    read_steps(folder, sealed, None)
}

/// Reads a segment like [`read`], with only the records of `steps` if it is not `None` (see [`Received::only`]). Other
/// rows are skipped without being held in memory.
///
/// # Errors
/// Returns an error in the same cases as [`read`].
pub fn read_steps(
    folder: &RunFolder,
    sealed: &Sealed,
    steps: Option<StepRange>,
) -> Result<Vec<Received>, StoreError> {
    let path = folder.path.join(&sealed.name);
    // For segments that the manifest does not name: the Parquet reader panics on some damage.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode(folder, &path, sealed, steps)));
    let decoded =
        decoded.unwrap_or_else(|_| Err(StoreError::content(&path, "the Parquet reader cannot read it")));
    Ok(decoded?.into_iter().filter_map(|received| received.only(steps)).collect())
}

fn decode(
    folder: &RunFolder,
    path: &Path,
    sealed: &Sealed,
    steps: Option<StepRange>,
) -> Result<Vec<Received>, StoreError> {
    let notes_path = path.join(NOTES);
    let notes = content(folder, path, sealed, NOTES)?;
    let unreadable = |reason| StoreError::content(&notes_path, reason);
    signed::known(&notes, VERSION).map_err(unreadable)?;
    let file: NotesFile = serde_json::from_slice(&notes).map_err(|error| unreadable(error.to_string()))?;
    let files = SegmentFiles { folder, path, sealed };
    let mut rebuilt = Rebuilt::new(path, &file, &files.table("batches.parquet", BATCHES, None)?)?;
    if steps.is_none() {
        rebuilt.add_notes(file.notes);
        rebuilt.add_in_flight(&file.in_flight);
        rebuilt.add_probes(&files.table("probes.parquet", PROBES, None)?);
    }
    rebuilt.add_spans(&files.table("spans.parquet", SPANS, steps)?)?;
    rebuilt.add_steps(&files.table("steps.parquet", STEPS, steps)?);
    rebuilt.add_buckets(&files.table("buckets.parquet", BUCKETS, steps)?)?;
    Ok(rebuilt.finish())
}

/// The location of a segment's files.
struct SegmentFiles<'a> {
    folder: &'a RunFolder,
    path: &'a Path,
    sealed: &'a Sealed,
}

impl SegmentFiles<'_> {
    /// Reads a table, with only the rows of `steps` if it is not `None`.
    fn table<const N: usize>(
        &self,
        name: &str,
        columns: [&'static str; N],
        steps: Option<StepRange>,
    ) -> Result<Table<N>, StoreError> {
        let content = content(self.folder, self.path, self.sealed, name)?.into();
        let decoded = match steps {
            None => Table::decode(content, columns),
            Some(StepRange { first, last }) => {
                Table::decode_where(content, columns, ("step", first.0 as i64..=last.0 as i64))
            }
        };
        decoded.map_err(|reason| StoreError::content(&self.path.join(name), reason))
    }
}

/// Reads a file of a segment and verifies its checksum.
fn content(folder: &RunFolder, path: &Path, sealed: &Sealed, name: &str) -> Result<Vec<u8>, StoreError> {
    let file = path.join(name);
    let content = folder.disk.read(&file).map_err(StoreError::io(&file, "read"))?;
    match sealed.files.get(name) {
        Some(sum) if *sum != FileSum::new(&content) => {
            Err(StoreError::content(&file, "it does not match its checksum"))
        }
        None if !sealed.files.is_empty() => {
            Err(StoreError::content(&file, "the manifest has no checksum for it"))
        }
        _ => Ok(content),
    }
}

#[cfg(test)]
mod tests;
