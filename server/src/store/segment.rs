//! Sealed segments: a log's batches as Parquet, without loss, readable by anything that reads Parquet.
//!
//! Every column is INT64, delta-encoded and zstd-compressed. Batches are in the order they came; of the rest, rows
//! of one rank's process lie together, in the order they came. Times are nanoseconds on the rank's own clock, a
//! bucket's launch, start and end relative to the time before. The pair (`life`, `batch`) says which batch a row
//! came in, so that replaying a segment is replaying its batches; only `Started` records, which their bucket
//! records supersede, are left out.

mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use wire::batch::{Batch, Drop, Note};
use wire::clock::{ClockAnchor, MonoNanos, Probe, ServerNanos, UnixNanos};
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, StepRecord};
use wire::ids::{BatchSeq, Bucket, Comm, Incarnation, Rank, RunId, Seq, Step};

use super::StoreError;
use super::directory::{sync_directory, write_atomically};
use super::log;
use table::Table;

/// A batch and when it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// When it came.
    pub at: ServerNanos,
    /// The batch.
    pub batch: Batch,
}

/// One life of one rank's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Life {
    rank: Rank,
    incarnation: Incarnation,
}

/// What of a segment is not a table.
#[derive(Debug, Serialize, Deserialize)]
struct NotesFile {
    version: u32,
    run: RunId,
    world_size: u32,
    lives: Vec<Life>,
    notes: Vec<BatchNotes>,
}

#[derive(Debug, Serialize, Deserialize)]
struct BatchNotes {
    life: usize,
    batch: u64,
    notes: Vec<Note>,
    drops: Vec<Drop>,
}

/// Which segments of a run count.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Names of segment folders, oldest first.
    pub segments: Vec<String>,
}

const NOTES_VERSION: u32 = 1;
const BATCHES: [&str; 5] = ["life", "batch", "received_ns", "anchor_mono_ns", "anchor_unix_ns"];
const PROBES: [&str; 6] =
    ["life", "batch", "sent_ns", "server_received_ns", "server_sent_after_ns", "received_after_ns"];
const STEPS: [&str; 8] = ["life", "batch", "rank", "step", "begin_ns", "duration_ns", "samples", "shadow"];
const SPANS: [&str; 8] = ["life", "batch", "rank", "step", "kind", "begin_ns", "duration_ns", "cpu_ns"];
const BUCKETS: [&str; 13] = [
    "life",
    "batch",
    "rank",
    "step",
    "comm",
    "seq",
    "bucket",
    "bytes",
    "ready_ns",
    "launch_after_ns",
    "start_after_ns",
    "duration_ns",
    "source",
];

/// The manifest of a run; empty when it has none yet.
///
/// # Errors
/// When it is there and cannot be read.
pub fn manifest(run: &Path) -> Result<Manifest, StoreError> {
    let path = run.join("manifest.json");
    if !path.exists() {
        return Ok(Manifest::default());
    }
    let bytes = fs::read(&path).map_err(StoreError::io(&path, "read"))?;
    serde_json::from_slice(&bytes).map_err(|error| StoreError::content(&path, error))
}

/// Turns a log that nobody writes to any more into a segment, then deletes it.
///
/// Interrupted at any point it can be done again: a segment counts once the manifest names it, and the log
/// goes only after that. A log that is there though its segment counts is only deleted.
///
/// # Errors
/// When the log cannot be read or the segment not written; the log is then still there.
pub fn seal(run: &Path, log_path: &Path) -> Result<(), StoreError> {
    let stem = log_path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = stem.replace("log-", "segment-");
    let mut manifest = manifest(run)?;
    if !manifest.segments.contains(&name) {
        let batches = read_log(log_path)?;
        if !batches.is_empty() {
            write(&run.join(&name), &batches)?;
            manifest.segments.push(name);
            manifest.segments.sort();
            let json = serde_json::to_vec_pretty(&manifest)
                .map_err(|error| StoreError::content(&run.join("manifest.json"), error))?;
            write_atomically(&run.join("manifest.json"), &json)?;
        }
    }
    fs::remove_file(log_path).map_err(StoreError::io(log_path, "remove"))
}

/// The batches of a log; entries that are no batches (none are written) are an error.
///
/// # Errors
/// When the log cannot be read or holds something else than batches.
pub fn read_log(path: &Path) -> Result<Vec<Received>, StoreError> {
    let (entries, torn) = log::read(path)?;
    if torn > 0 {
        tracing::warn!(log = %path.display(), torn, "the log ends in bytes that were never acknowledged");
    }
    let decode = |entry: log::Entry| {
        let batch = wire::codec::decode(&entry.frame).map_err(|error| StoreError::content(path, error))?;
        Ok(Received { at: entry.received, batch })
    };
    entries.into_iter().map(decode).collect()
}

/// Writes `batches` of one run as the segment folder `path`.
fn write(path: &Path, batches: &[Received]) -> Result<(), StoreError> {
    let Some(first) = batches.first() else { return Ok(()) };
    fs::create_dir_all(path).map_err(StoreError::io(path, "create"))?;
    let mut lives: BTreeMap<Life, usize> = BTreeMap::new();
    let mut tables = Tables::default();
    let mut notes = Vec::new();
    for Received { at, batch } in batches {
        let count = lives.len();
        let life = Life { rank: batch.rank, incarnation: batch.incarnation };
        let life = *lives.entry(life).or_insert(count);
        tables.push(*at, batch, life as i64);
        if !batch.notes.is_empty() || !batch.drops.is_empty() {
            let (notes_of, drops) = (batch.notes.clone(), batch.drops.clone());
            notes.push(BatchNotes { life, batch: batch.seq.0, notes: notes_of, drops });
        }
    }
    let mut by_index: Vec<(usize, Life)> = lives.into_iter().map(|(life, index)| (index, life)).collect();
    by_index.sort_by_key(|(index, _)| *index);
    let file = NotesFile {
        version: NOTES_VERSION,
        run: first.batch.run.clone(),
        world_size: first.batch.world_size,
        lives: by_index.into_iter().map(|(_, life)| life).collect(),
        notes,
    };
    tables.group();
    tables.write(path)?;
    let notes_path = path.join("notes.json");
    let json = serde_json::to_vec(&file).map_err(|error| StoreError::content(&notes_path, error))?;
    write_atomically(&notes_path, &json)?;
    sync_directory(path)
}

/// The five tables of a segment.
struct Tables {
    batches: Table<5>,
    probes: Table<6>,
    steps: Table<8>,
    spans: Table<8>,
    buckets: Table<13>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            batches: Table::new(BATCHES),
            probes: Table::new(PROBES),
            steps: Table::new(STEPS),
            spans: Table::new(SPANS),
            buckets: Table::new(BUCKETS),
        }
    }
}

impl Tables {
    fn push(&mut self, at: ServerNanos, batch: &Batch, life: i64) {
        let key = batch.seq.0 as i64;
        self.batches.push([life, key, at.0, batch.anchor.mono.0, batch.anchor.unix.0]);
        for probe in &batch.probes {
            let inside = probe.server_sent - probe.server_received;
            let (sent, received) = (probe.sent.0, probe.server_received.0);
            self.probes.push([life, key, sent, received, inside, probe.received - probe.sent]);
        }
        let rank = i64::from(batch.rank.0);
        for event in &batch.events {
            match event {
                Event::Step(r) => self.steps.push([
                    life,
                    key,
                    rank,
                    r.step.0 as i64,
                    r.begin.0,
                    r.end.0.wrapping_sub(r.begin.0),
                    r.samples as i64,
                    i64::from(r.shadow),
                ]),
                Event::Span(r) => self.spans.push([
                    life,
                    key,
                    rank,
                    r.step.0 as i64,
                    r.kind as i64,
                    r.begin.0,
                    r.end.0.wrapping_sub(r.begin.0),
                    r.cpu_nanos as i64,
                ]),
                Event::Bucket(r) => self.buckets.push([
                    life,
                    key,
                    rank,
                    r.step.0 as i64,
                    i64::from(r.comm.0),
                    r.seq.0 as i64,
                    i64::from(r.bucket.0),
                    r.bytes as i64,
                    r.ready.0,
                    r.launch.0.wrapping_sub(r.ready.0),
                    r.start.0.wrapping_sub(r.launch.0),
                    r.end.0.wrapping_sub(r.start.0),
                    r.source as i64,
                ]),
                Event::Started(_) => {}
            }
        }
    }

    /// Records of one life lie together: what differs little is then next to each other. Only the table of
    /// batches says in which order they came.
    fn group(&mut self) {
        self.probes.group();
        self.steps.group();
        self.spans.group();
        self.buckets.group();
    }

    fn write(&self, path: &Path) -> Result<(), StoreError> {
        self.batches.write(&path.join("batches.parquet"))?;
        self.probes.write(&path.join("probes.parquet"))?;
        self.steps.write(&path.join("steps.parquet"))?;
        self.spans.write(&path.join("spans.parquet"))?;
        self.buckets.write(&path.join("buckets.parquet"))
    }
}

/// The batches of a segment, in the order they came.
///
/// # Errors
/// When a file is missing or holds something else than [`seal`] writes.
pub fn read(path: &Path) -> Result<Vec<Received>, StoreError> {
    let notes_path = path.join("notes.json");
    let bytes = fs::read(&notes_path).map_err(StoreError::io(&notes_path, "read"))?;
    let file: NotesFile =
        serde_json::from_slice(&bytes).map_err(|error| StoreError::content(&notes_path, error))?;
    if file.version != NOTES_VERSION {
        let reason = format!("segment version {}, this program reads {NOTES_VERSION}", file.version);
        return Err(StoreError::content(&notes_path, reason));
    }
    let mut rebuilt = Rebuilt::new(path, &file)?;
    rebuilt.add_notes(file.notes);
    rebuilt.add_probes(&Table::read(&path.join("probes.parquet"), PROBES)?);
    rebuilt.add_spans(&Table::read(&path.join("spans.parquet"), SPANS)?)?;
    rebuilt.add_steps(&Table::read(&path.join("steps.parquet"), STEPS)?);
    rebuilt.add_buckets(&Table::read(&path.join("buckets.parquet"), BUCKETS)?)?;
    Ok(rebuilt.batches)
}

/// Batches under reconstruction.
struct Rebuilt {
    path: PathBuf,
    batches: Vec<Received>,
    index: BTreeMap<(i64, i64), usize>,
}

impl Rebuilt {
    fn new(path: &Path, file: &NotesFile) -> Result<Self, StoreError> {
        let table = Table::read(&path.join("batches.parquet"), BATCHES)?;
        let mut rebuilt = Self { path: path.to_owned(), batches: Vec::new(), index: BTreeMap::new() };
        for [life, seq, received, mono, unix] in table.rows() {
            let Some(who) = usize::try_from(life).ok().and_then(|life| file.lives.get(life)) else {
                return Err(StoreError::content(path, format!("no life {life} in notes.json")));
            };
            rebuilt.index.insert((life, seq), rebuilt.batches.len());
            let batch = Batch {
                run: file.run.clone(),
                rank: who.rank,
                world_size: file.world_size,
                incarnation: who.incarnation,
                seq: BatchSeq(seq as u64),
                anchor: ClockAnchor { mono: MonoNanos(mono), unix: UnixNanos(unix) },
                probes: Vec::new(),
                drops: Vec::new(),
                notes: Vec::new(),
                events: Vec::new(),
            };
            rebuilt.batches.push(Received { at: ServerNanos(received), batch });
        }
        Ok(rebuilt)
    }

    fn batch(&mut self, life: i64, seq: i64) -> Option<&mut Batch> {
        let index = *self.index.get(&(life, seq))?;
        self.batches.get_mut(index).map(|received| &mut received.batch)
    }

    fn add_notes(&mut self, notes: Vec<BatchNotes>) {
        for note in notes {
            if let Some(batch) = self.batch(note.life as i64, note.batch as i64) {
                batch.notes = note.notes;
                batch.drops = note.drops;
            }
        }
    }

    fn add_probes(&mut self, table: &Table<6>) {
        for [life, seq, sent, received, inside, round] in table.rows() {
            if let Some(batch) = self.batch(life, seq) {
                batch.probes.push(Probe {
                    sent: MonoNanos(sent),
                    server_received: ServerNanos(received),
                    server_sent: ServerNanos(received) + inside,
                    received: MonoNanos(sent) + round,
                });
            }
        }
    }

    fn add_steps(&mut self, table: &Table<8>) {
        for [life, seq, _rank, step, begin, duration, samples, shadow] in table.rows() {
            if let Some(batch) = self.batch(life, seq) {
                batch.events.push(Event::Step(StepRecord {
                    step: Step(step as u64),
                    begin: MonoNanos(begin),
                    end: MonoNanos(begin.wrapping_add(duration)),
                    samples: samples as u64,
                    shadow: shadow != 0,
                }));
            }
        }
    }

    fn add_spans(&mut self, table: &Table<8>) -> Result<(), StoreError> {
        for [life, seq, _rank, step, kind, begin, duration, cpu] in table.rows() {
            let kind = *self.choose("span kind", &SpanKind::ALL, kind)?;
            if let Some(batch) = self.batch(life, seq) {
                batch.events.push(Event::Span(Span {
                    step: Step(step as u64),
                    kind,
                    begin: MonoNanos(begin),
                    end: MonoNanos(begin.wrapping_add(duration)),
                    cpu_nanos: cpu as u64,
                }));
            }
        }
        Ok(())
    }

    fn add_buckets(&mut self, table: &Table<13>) -> Result<(), StoreError> {
        const SOURCES: [Source; 4] =
            [Source::HostClock, Source::DeviceEvent, Source::ActivityRecord, Source::Derived];
        for row in table.rows() {
            let [life, seq, _rank, step, comm, number, bucket, bytes, ready, launch, start, end, source] =
                row;
            let source = *self.choose("source", &SOURCES, source)?;
            let ready = MonoNanos(ready);
            let launch = MonoNanos(ready.0.wrapping_add(launch));
            let start = MonoNanos(launch.0.wrapping_add(start));
            if let Some(batch) = self.batch(life, seq) {
                batch.events.push(Event::Bucket(BucketRecord {
                    step: Step(step as u64),
                    comm: Comm(comm as u32),
                    seq: Seq(number as u64),
                    bucket: Bucket(bucket as u32),
                    bytes: bytes as u64,
                    ready,
                    launch,
                    start,
                    end: MonoNanos(start.0.wrapping_add(end)),
                    source,
                }));
            }
        }
        Ok(())
    }

    fn choose<'a, T>(&self, what: &str, all: &'a [T], number: i64) -> Result<&'a T, StoreError> {
        let chosen = usize::try_from(number).ok().and_then(|index| all.get(index));
        chosen.ok_or_else(|| StoreError::content(&self.path, format!("{what} {number} means nothing")))
    }
}

#[cfg(test)]
mod tests;
