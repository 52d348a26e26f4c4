//! The records of a batch as four tables, one per kind of record. A table is a sequence of columns.
//!
//! The order of records of different kinds is not preserved. Every record names its step and its times, and no reader
//! depends on the order in the ring.

use super::DecodeError;
use super::column::{read, read_differences, unzigzag, write, write_differences, zigzag};
use super::primitive::{Reader, Writer};
use crate::batch::MAX_EVENTS;
use crate::clock::MonoNanos;
use crate::event::{BucketRecord, Event, Source, Span, SpanKind, Started, StepRecord};
use crate::ids::{Bucket, Comm, Seq, Step};

/// The form of a column's values, with the column's name.
#[derive(Clone, Copy)]
enum Holds {
    Values(&'static str),
    /// Differences: each value minus the previous one.
    Differences(&'static str),
}

use Holds::{Differences, Values};

const SPANS: [Holds; 5] = [
    Differences("span step"),
    Values("span kind"),
    Differences("span begin"),
    Values("span length"),
    Values("span cpu"),
];
const STEPS: [Holds; 5] = [
    Differences("step"),
    Differences("step begin"),
    Values("step length"),
    Values("samples"),
    Values("shadow"),
];
const STARTED: [Holds; 6] = [
    Differences("step"),
    Values("communicator"),
    Differences("sequence"),
    Values("bucket"),
    Values("bytes"),
    Differences("launch"),
];
const BUCKETS: [Holds; 10] = [
    Differences("step"),
    Values("communicator"),
    Differences("sequence"),
    Values("bucket"),
    Values("bytes"),
    Differences("ready"),
    Values("launch"),
    Values("start"),
    Values("end"),
    Values("source"),
];

/// The columns of one table under construction: `columns[c][row]`.
struct Columns<const N: usize> {
    holds: [Holds; N],
    columns: [Vec<u64>; N],
}

impl<const N: usize> Columns<N> {
    fn new(holds: [Holds; N]) -> Self {
        Self { holds, columns: std::array::from_fn(|_| Vec::new()) }
    }

    fn push(&mut self, row: [u64; N]) {
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(value);
        }
    }

    fn write(&self, out: &mut Writer) {
        out.varint(self.columns[0].len() as u64);
        if !self.columns[0].is_empty() {
            for (column, holds) in self.columns.iter().zip(self.holds) {
                match holds {
                    Values(_) => write(out, column),
                    Differences(_) => write_differences(out, column),
                }
            }
        }
    }

    /// Reads a table. `room` is the number of rows that the batch may still have, in this table and the following ones.
    fn read(input: &mut Reader<'_>, holds: [Holds; N], room: &mut usize) -> Result<Self, DecodeError> {
        let rows = input.varint("rows")?;
        let left = usize::try_from(rows).ok().and_then(|rows| room.checked_sub(rows));
        let most = *room as u64;
        *room = left.ok_or(DecodeError::TooLarge { what: "rows", found: rows, most })?;
        let mut table = Self::new(holds);
        if rows > 0 {
            for (column, holds) in table.columns.iter_mut().zip(holds) {
                *column = match holds {
                    Values(name) => read(input, name, rows as usize)?,
                    Differences(name) => read_differences(input, name, rows as usize)?,
                };
            }
        }
        Ok(table)
    }

    fn rows(&self) -> impl Iterator<Item = [u64; N]> + '_ {
        (0..self.columns[0].len()).map(|row| std::array::from_fn(|column| self.columns[column][row]))
    }
}

/// A value stored as its difference from the previous one. The arithmetic wraps, so that every value survives.
#[derive(Default)]
struct Delta(u64);

impl From<MonoNanos> for Delta {
    fn from(start: MonoNanos) -> Self {
        Self(start.0 as u64)
    }
}

impl Delta {
    fn encode(&mut self, value: u64) -> u64 {
        let difference = value.wrapping_sub(self.0) as i64;
        self.0 = value;
        zigzag(difference)
    }

    fn decode(&mut self, stored: u64) -> u64 {
        self.0 = self.0.wrapping_add(unzigzag(stored) as u64);
        self.0
    }
}

fn packed_difference(later: MonoNanos, earlier: MonoNanos) -> u64 {
    zigzag(later.0.wrapping_sub(earlier.0))
}

fn unpacked_time(earlier: MonoNanos, stored: u64) -> MonoNanos {
    MonoNanos(earlier.0.wrapping_add(unzigzag(stored)))
}

fn narrow(what: &'static str, found: u64) -> Result<u32, DecodeError> {
    u32::try_from(found).map_err(|_| DecodeError::TooLarge { what, found, most: u64::from(u32::MAX) })
}

fn tag<T: Copy>(what: &'static str, all: &[T], found: u64) -> Result<T, DecodeError> {
    usize::try_from(found).ok().and_then(|index| all.get(index)).copied().ok_or(DecodeError::Value {
        what,
        at: 0,
        found,
    })
}

const SOURCES: [Source; 4] =
    [Source::HostClock, Source::DeviceEvent, Source::ActivityRecord, Source::Derived];

/// Writes the four tables. Times are close to `anchor`, and so are their first differences.
pub(super) fn write_events(out: &mut Writer, anchor: MonoNanos, events: &[Event]) {
    let (mut spans, mut steps) = (Columns::new(SPANS), Columns::new(STEPS));
    let (mut started, mut buckets) = (Columns::new(STARTED), Columns::new(BUCKETS));
    let [mut span_step, mut step_step, mut start_step, mut step] = <[Delta; 4]>::default();
    let [mut start_seq, mut seq] = <[Delta; 2]>::default();
    let [mut span_begin, mut step_begin, mut start_launch, mut ready] = [(); 4].map(|()| Delta::from(anchor));
    for event in events {
        match event {
            Event::Span(span) => spans.push([
                span_step.encode(span.step.0),
                span.kind as u64,
                span_begin.encode(span.begin.0 as u64),
                packed_difference(span.end, span.begin),
                span.cpu_nanos,
            ]),
            Event::Step(record) => steps.push([
                step_step.encode(record.step.0),
                step_begin.encode(record.begin.0 as u64),
                packed_difference(record.end, record.begin),
                record.samples,
                u64::from(record.shadow),
            ]),
            Event::Started(record) => started.push([
                start_step.encode(record.step.0),
                u64::from(record.comm.0),
                start_seq.encode(record.seq.0),
                u64::from(record.bucket.0),
                record.bytes,
                start_launch.encode(record.launch.0 as u64),
            ]),
            Event::Bucket(record) => buckets.push([
                step.encode(record.step.0),
                u64::from(record.comm.0),
                seq.encode(record.seq.0),
                u64::from(record.bucket.0),
                record.bytes,
                ready.encode(record.ready.0 as u64),
                packed_difference(record.launch, record.ready),
                packed_difference(record.start, record.launch),
                packed_difference(record.end, record.start),
                record.source as u64,
            ]),
        }
    }
    spans.write(out);
    steps.write(out);
    started.write(out);
    buckets.write(out);
}

pub(super) fn read_events(input: &mut Reader<'_>, anchor: MonoNanos) -> Result<Vec<Event>, DecodeError> {
    let mut room = MAX_EVENTS;
    let (spans, steps) = (Columns::read(input, SPANS, &mut room)?, Columns::read(input, STEPS, &mut room)?);
    let (started, buckets) =
        (Columns::read(input, STARTED, &mut room)?, Columns::read(input, BUCKETS, &mut room)?);

    let mut events = Vec::with_capacity(MAX_EVENTS - room);
    let (mut step, mut begin) = (Delta::default(), Delta::from(anchor));
    for [d_step, kind, d_begin, length, cpu_nanos] in spans.rows() {
        let begin = MonoNanos(begin.decode(d_begin) as i64);
        events.push(Event::Span(Span {
            step: Step(step.decode(d_step)),
            kind: tag("span kind", &SpanKind::ALL, kind)?,
            begin,
            end: unpacked_time(begin, length),
            cpu_nanos,
        }));
    }
    let (mut step, mut begin) = (Delta::default(), Delta::from(anchor));
    for [d_step, d_begin, length, samples, shadow] in steps.rows() {
        let begin = MonoNanos(begin.decode(d_begin) as i64);
        events.push(Event::Step(StepRecord {
            step: Step(step.decode(d_step)),
            begin,
            end: unpacked_time(begin, length),
            samples,
            shadow: tag("shadow", &[false, true], shadow)?,
        }));
    }
    let (mut step, mut seq, mut launch) = (Delta::default(), Delta::default(), Delta::from(anchor));
    for [d_step, comm, d_seq, bucket, bytes, d_launch] in started.rows() {
        events.push(Event::Started(Started {
            step: Step(step.decode(d_step)),
            comm: Comm(narrow("communicator", comm)?),
            seq: Seq(seq.decode(d_seq)),
            bucket: Bucket(narrow("bucket", bucket)?),
            bytes,
            launch: MonoNanos(launch.decode(d_launch) as i64),
        }));
    }
    let (mut step, mut seq, mut ready) = (Delta::default(), Delta::default(), Delta::from(anchor));
    for [d_step, comm, d_seq, bucket, bytes, d_ready, to_launch, to_start, to_end, source] in buckets.rows() {
        let ready = MonoNanos(ready.decode(d_ready) as i64);
        let launch = unpacked_time(ready, to_launch);
        let start = unpacked_time(launch, to_start);
        events.push(Event::Bucket(BucketRecord {
            step: Step(step.decode(d_step)),
            comm: Comm(narrow("communicator", comm)?),
            seq: Seq(seq.decode(d_seq)),
            bucket: Bucket(narrow("bucket", bucket)?),
            bytes,
            ready,
            launch,
            start,
            end: unpacked_time(start, to_end),
            source: tag("source", &SOURCES, source)?,
        }));
    }
    Ok(events)
}
