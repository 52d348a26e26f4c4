//! Rebuilds batches from the rows of a segment's tables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use wire::batch::Batch;
use wire::clock::{ClockAnchor, MonoNanos, Probe, ServerNanos, UnixNanos};
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, StepRecord};
use wire::ids::{BatchSeq, Bucket, Comm, Seq, Step};

use super::table::Table;
use super::{BatchNotes, InFlight, NotesFile, Received};
use crate::store::StoreError;

/// Batches under reconstruction.
pub(super) struct Rebuilt {
    path: PathBuf,
    batches: Vec<Received>,
    index: BTreeMap<(i64, i64), usize>,
}

impl Rebuilt {
    /// Creates batches without records from the table of batches, which is in order of arrival.
    pub(super) fn new(path: &Path, file: &NotesFile, table: &Table<5>) -> Result<Self, StoreError> {
        let mut rebuilt = Self { path: path.to_owned(), batches: Vec::new(), index: BTreeMap::new() };
        for [life, seq, received, mono, unix] in table.rows() {
            let Some(who) = usize::try_from(life).ok().and_then(|life| file.lives.get(life)) else {
                return Err(StoreError::content(path, format!("notes.json has no life {life}")));
            };
            if rebuilt.index.insert((life, seq), rebuilt.batches.len()).is_some() {
                return Err(StoreError::content(path, format!("it has batch {seq} of life {life} twice")));
            }
            let batch = Batch {
                run: file.run.clone(),
                rank: who.rank,
                world_size: who.world_size,
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

    /// Returns the complete batches.
    pub(super) fn finish(self) -> Vec<Received> {
        self.batches
    }

    fn batch(&mut self, life: i64, seq: i64) -> Option<&mut Batch> {
        let index = *self.index.get(&(life, seq))?;
        self.batches.get_mut(index).map(|received| &mut received.batch)
    }

    pub(super) fn add_notes(&mut self, notes: Vec<BatchNotes>) {
        for note in notes {
            if let Some(batch) = self.batch(note.life as i64, note.batch as i64) {
                batch.notes = note.notes;
                batch.drops = note.drops;
            }
        }
    }

    pub(super) fn add_in_flight(&mut self, in_flight: &[InFlight]) {
        for &InFlight { life, batch, started } in in_flight {
            if let Some(batch) = self.batch(life as i64, batch as i64) {
                batch.events.push(Event::Started(started));
            }
        }
    }

    pub(super) fn add_probes(&mut self, table: &Table<6>) {
        for [life, seq, sent, received, inside, round] in table.rows() {
            if let Some(batch) = self.batch(life, seq) {
                batch.probes.push(Probe {
                    sent: MonoNanos(sent),
                    server_received: ServerNanos(received),
                    server_sent: ServerNanos(received.wrapping_add(inside)),
                    received: MonoNanos(sent.wrapping_add(round)),
                });
            }
        }
    }

    pub(super) fn add_steps(&mut self, table: &Table<8>) {
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

    pub(super) fn add_spans(&mut self, table: &Table<8>) -> Result<(), StoreError> {
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

    pub(super) fn add_buckets(&mut self, table: &Table<13>) -> Result<(), StoreError> {
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
        chosen.ok_or_else(|| StoreError::content(&self.path, format!("unknown {what} {number}")))
    }
}
