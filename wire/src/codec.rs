//! The binary format of a batch.
//!
//! ```text
//! frame   = "PCLB" version:u16 coding:u16 plain_len:u32 payload        little endian throughout
//! payload = zstd level 1 of the plain bytes (coding 0), or the plain bytes (coding 1)
//! plain   = head, then one table per record kind, each a sequence of columns
//! column  = width:u8 least:varint, then `width` bits per row: the row's value minus the least value
//!         | 64+width:u8 shift:u8 least:varint, then the same without the `shift` lowest bits, which are zero
//!         | 255:u8                                  all rows are zero
//!         | first:varint column                     for columns of differences
//! ```
//!
//! Times are relative: `ready` to the previous record (in the first record to the anchor), `launch` to `ready`, `start`
//! to `launch`, `end` to `start`.
//!
//! Every length is checked against a limit before memory is allocated. No input makes [`decode`] panic or hold more
//! than [`MAX_DECODING_BYTES`]. A value that no encoder writes is an error, and so is a figure that occurs twice.

mod column;
mod layout;
mod primitive;
mod stacks;
mod table;
mod traces;
mod workload;

use std::collections::BTreeMap;

use crate::attributes::{Attributes, MAX_ATTRIBUTES};
use crate::batch::{
    Batch, Bye, Drop, DropReason, Hello, Instrumentation, MAX_RANKS, Note, WIRE_VERSION, Waiting,
};
#[cfg(feature = "compress")]
use crate::batch::{MAX_PLAIN_BYTES, MAX_WIRE_BYTES};
use crate::burst::{Activity, Burst, BurstOutcome, KernelTime, MAX_KERNELS};
use crate::clock::{ClockAnchor, MonoNanos, Probe, ServerNanos, UnixNanos};
use crate::device::{DeviceFigure, DeviceSample};
use crate::event::{EventKind, SpanKind};
use crate::host::{HostFigure, HostSample};
use crate::ids::{BatchSeq, Incarnation, Rank, RunId, RunIdError, Seq, Step};
use primitive::{Reader, Writer};

/// The reason why bytes are not a batch, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The first four bytes are not the magic number.
    #[error("not a Paceline batch: it starts with {found:02x?}, not with \"PCLB\"")]
    Magic {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// This program does not read the version.
    #[error(
        "unsupported batch version {found}: this server reads version {WIRE_VERSION}; it must be at least as new as its agents, so \
         upgrade it"
    )]
    Version {
        /// The version in the frame.
        found: u16,
    },
    /// The bytes end too early.
    #[error("truncated: {what} at byte {at} needs {needed} bytes, but {left} are left")]
    Truncated {
        /// The item being read.
        what: &'static str,
        /// The position in the frame or in the plain payload.
        at: usize,
        /// The number of bytes needed.
        needed: usize,
        /// The number of bytes left.
        left: usize,
    },
    /// A length or count exceeds its limit.
    #[error("{what}: {found} exceeds the limit of {most}")]
    TooLarge {
        /// The item being read.
        what: &'static str,
        /// The number in the bytes.
        found: u64,
        /// The limit.
        most: u64,
    },
    /// The payload does not decompress to the length in the frame.
    #[error("the payload does not decompress: {reason}")]
    Compression {
        /// The decompressor's message.
        reason: String,
    },
    /// No encoder writes this value.
    #[error("invalid {what} at byte {at}: {found}")]
    Value {
        /// The item being read.
        what: &'static str,
        /// The position in the plain payload.
        at: usize,
        /// The number in the bytes.
        found: u64,
    },
    /// A text is not UTF-8.
    #[error("{what} at byte {at} is not UTF-8")]
    Text {
        /// The item being read.
        what: &'static str,
        /// The position in the plain payload.
        at: usize,
    },
    /// This program does not know the name.
    #[error("unknown {what} {found:?}: upgrade the server or the agent, whichever is older")]
    Unknown {
        /// The item being read.
        what: &'static str,
        /// The name.
        found: String,
    },
    /// The run id is invalid.
    #[error(transparent)]
    RunId(#[from] RunIdError),
    /// The rank is not below the number of ranks, or the number of ranks exceeds [`MAX_RANKS`].
    #[error("rank {rank} of {world_size}: a run has 1 to {MAX_RANKS} ranks, counted from 0")]
    Rank {
        /// The rank in the batch.
        rank: u32,
        /// The number of ranks in the batch.
        world_size: u32,
    },
    /// Bytes follow the last table.
    #[error("{left} bytes follow the last table")]
    Trailing {
        /// The number of bytes.
        left: usize,
    },
}

/// The largest number of probes, drops or notes in one batch.
const MAX_HEAD_ITEMS: u64 = 1_024;
/// The longest text, in bytes.
const MAX_TEXT_BYTES: u64 = 4_096;
/// The most memory that all lists and texts of a batch may take, in bytes: the names of 65,536 parameters in both
/// layouts, at 128 bytes each. Without this limit, 8 MiB of empty names would take 200 MiB.
const MAX_LIST_BYTES: usize = 16 << 20;
/// The most memory that [`decode`] holds, in bytes: 8 MiB of plain bytes, 16 MiB of lists and texts,
/// [`MAX_EVENTS`](crate::batch::MAX_EVENTS) rows of ten columns (5 MiB), as many records of 88 bytes (5.5 MiB), and
/// some kilobytes.
pub const MAX_DECODING_BYTES: usize = 36 << 20;

#[cfg(feature = "compress")]
const MAGIC: [u8; 4] = *b"PCLB";
#[cfg(feature = "compress")]
const FRAME_HEAD_BYTES: usize = 12;
#[cfg(feature = "compress")]
const ZSTD: u16 = 0;
#[cfg(feature = "compress")]
const STORED: u16 = 1;
/// The length of plain bytes from which a batch is compressed. Shorter batches are stored: packed columns leave little
/// to compress, and creating a compressor takes longer than all other work on a batch of 100 ms.
#[cfg(feature = "compress")]
const COMPRESS_FROM: usize = 1_024;

/// Encodes a batch as a frame.
///
/// # Errors
/// Returns an error if the compressor fails, which happens only when it cannot allocate memory.
#[cfg(feature = "compress")]
pub fn encode(batch: &Batch) -> Result<Vec<u8>, std::io::Error> {
    let plain = encode_plain(batch);
    let plain_len = plain.len();
    let (coding, payload) =
        if plain_len < COMPRESS_FROM { (STORED, plain) } else { (ZSTD, zstd::bulk::compress(&plain, 1)?) };
    let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + payload.len());
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&WIRE_VERSION.to_le_bytes());
    frame.extend_from_slice(&coding.to_le_bytes());
    frame.extend_from_slice(&(plain_len as u32).to_le_bytes());
    frame.extend_from_slice(&payload);
    Ok(frame)
}

/// Returns the decompressed length of a frame's payload, as the frame states it; `None` if the frame is too short.
#[must_use]
pub fn plain_length(frame: &[u8]) -> Option<usize> {
    let length = frame.get(8..12)?.try_into().ok()?;
    Some(u32::from_le_bytes(length) as usize)
}

/// Decodes a frame. Never panics, whatever the bytes.
///
/// # Errors
/// Returns a [`DecodeError`] that names what is wrong and where.
#[cfg(feature = "compress")]
pub fn decode(frame: &[u8]) -> Result<Batch, DecodeError> {
    let mut head = Reader::new(frame);
    let magic = head.bytes("magic", 4)?;
    if magic != MAGIC {
        return Err(DecodeError::Magic { found: magic.to_vec() });
    }
    match head.u16("version")? {
        WIRE_VERSION => {}
        found => return Err(DecodeError::Version { found }),
    }
    let at = head.position();
    let coding = head.u16("coding")?;
    let plain_len = head.u32("plain length")? as usize;
    for (what, found, most) in
        [("plain length", plain_len, MAX_PLAIN_BYTES), ("frame length", frame.len(), MAX_WIRE_BYTES)]
    {
        if found > most {
            return Err(DecodeError::TooLarge { what, found: found as u64, most: most as u64 });
        }
    }
    match (coding, head.rest()) {
        (ZSTD, payload) => decode_plain(&decompress(payload, plain_len)?),
        (STORED, plain) if plain.len() == plain_len => decode_plain(plain),
        (STORED, plain) => {
            let (at, left) = (FRAME_HEAD_BYTES, plain.len());
            Err(DecodeError::Truncated { what: "payload", at, needed: plain_len, left })
        }
        (found, _) => Err(DecodeError::Value { what: "coding", at, found: u64::from(found) }),
    }
}

#[cfg(feature = "compress")]
fn decompress(payload: &[u8], plain_len: usize) -> Result<Vec<u8>, DecodeError> {
    let failed = |reason: String| DecodeError::Compression { reason };
    // The decompressor gets room for exactly the length in the frame. This is the guard against decompression bombs.
    let plain = zstd::bulk::decompress(payload, plain_len).map_err(|error| failed(error.to_string()))?;
    if plain.len() != plain_len {
        return Err(failed(format!("the frame states {plain_len} bytes, the payload has {}", plain.len())));
    }
    Ok(plain)
}

/// Encodes a batch without frame and compression.
#[must_use]
pub fn encode_plain(batch: &Batch) -> Vec<u8> {
    let mut out = Writer::default();
    out.text(batch.run.as_str());
    out.varint(u64::from(batch.rank.0));
    out.varint(u64::from(batch.world_size));
    out.u64(batch.incarnation.0);
    out.varint(batch.seq.0);
    out.i64(batch.anchor.mono.0);
    out.i64(batch.anchor.unix.0);
    out.varint(batch.probes.len() as u64);
    for probe in &batch.probes {
        out.i64(probe.sent.0);
        out.i64(probe.server_received.0);
        out.i64(probe.server_sent.0);
        out.i64(probe.received.0);
    }
    out.varint(batch.drops.len() as u64);
    for drop in &batch.drops {
        out.u8(drop.kind as u8);
        out.u8(drop.reason as u8);
        out.varint(drop.count);
    }
    out.varint(batch.notes.len() as u64);
    for note in &batch.notes {
        write_note(&mut out, note);
    }
    table::write_events(&mut out, batch.anchor.mono, &batch.events);
    out.into_bytes()
}

/// Decodes the output of [`encode_plain`].
///
/// # Errors
/// Returns a [`DecodeError`] that names what is wrong and where.
pub fn decode_plain(plain: &[u8]) -> Result<Batch, DecodeError> {
    let mut input = Reader::new(plain);
    let mut batch = Batch {
        run: RunId::new(input.text("run id")?)?,
        rank: Rank(input.varint_u32("rank")?),
        world_size: input.varint_u32("world size")?,
        incarnation: Incarnation(input.u64("incarnation")?),
        seq: BatchSeq(input.varint("batch sequence number")?),
        anchor: ClockAnchor { mono: MonoNanos(input.i64("anchor")?), unix: UnixNanos(input.i64("anchor")?) },
        probes: read_list(&mut input, "probes", MAX_HEAD_ITEMS, read_probe)?,
        drops: read_list(&mut input, "drops", MAX_HEAD_ITEMS, read_drop)?,
        notes: read_list(&mut input, "notes", MAX_HEAD_ITEMS, read_note)?,
        events: Vec::new(),
    };
    batch.events = table::read_events(&mut input, batch.anchor.mono)?;
    let (rank, world_size) = (batch.rank.0, batch.world_size);
    if rank >= world_size || world_size > MAX_RANKS {
        return Err(DecodeError::Rank { rank, world_size });
    }
    match input.rest().len() {
        0 => Ok(batch),
        left => Err(DecodeError::Trailing { left }),
    }
}

fn read_list<T>(
    input: &mut Reader<'_>,
    what: &'static str,
    most: u64,
    read: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = input.count(what, most)?;
    input.hold(count * size_of::<T>())?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(read(input)?);
    }
    Ok(items)
}

fn read_probe(input: &mut Reader<'_>) -> Result<Probe, DecodeError> {
    Ok(Probe {
        sent: MonoNanos(input.i64("probe")?),
        server_received: ServerNanos(input.i64("probe")?),
        server_sent: ServerNanos(input.i64("probe")?),
        received: MonoNanos(input.i64("probe")?),
    })
}

fn read_drop(input: &mut Reader<'_>) -> Result<Drop, DecodeError> {
    Ok(Drop {
        kind: input.tag("drop kind", &EventKind::ALL)?,
        reason: input.tag("drop reason", &DropReason::ALL)?,
        count: input.varint("drop count")?,
    })
}

fn write_note(out: &mut Writer, note: &Note) {
    match note {
        Note::Hello(hello) => {
            out.u8(0);
            out.text(&hello.name);
            out.text(&hello.host);
            out.text(&hello.clock);
            out.varint(u64::from(hello.pid));
            out.varint(u64::from(hello.local_rank));
            out.text(&hello.sample_unit);
            out.varint(hello.parameters);
            out.text(hello.instrumentation.name());
        }
        Note::Layout(layout) => {
            out.u8(1);
            layout::write(out, layout);
        }
        Note::Bye(bye) => {
            out.u8(2);
            out.u8(u8::from(bye.completed));
            out.text(&bye.reason);
        }
        Note::Device(sample) => {
            out.u8(3);
            out.i64(sample.at.0);
            out.text(&sample.device);
            write_figures(out, &sample.figures, |figure| figure as u8);
        }
        Note::Burst(burst) => {
            out.u8(4);
            write_burst(out, burst);
        }
        Note::Host(sample) => {
            out.u8(5);
            out.i64(sample.at.0);
            out.text(&sample.cores);
            write_figures(out, &sample.figures, |figure| figure as u8);
        }
        Note::Attributes(attributes) => {
            out.u8(6);
            write_texts(out, &attributes.labels);
            write_texts(out, &attributes.software);
        }
        Note::Stacks(stacks) => {
            out.u8(7);
            stacks::write(out, stacks);
        }
        Note::Workload(workload) => {
            out.u8(8);
            workload::write(out, workload);
        }
        Note::Resumed { step } => {
            out.u8(9);
            out.varint(step.0);
        }
        Note::Traced(summary) => {
            out.u8(10);
            traces::write(out, summary);
        }
        Note::LongStep(long) => {
            out.u8(11);
            stacks::write_long_step(out, long);
        }
        Note::Line(line) => {
            out.u8(12);
            stacks::write_line(out, line);
        }
        Note::Waits { waiting } => {
            out.u8(13);
            out.u8(u8::from(waiting.is_some()));
            if let Some(Waiting { seq, launch }) = waiting {
                out.varint(seq.0);
                out.i64(launch.0);
            }
        }
    }
}

fn write_texts(out: &mut Writer, texts: &BTreeMap<String, String>) {
    let texts = texts.iter().take(MAX_ATTRIBUTES);
    out.varint(texts.len() as u64);
    for (name, value) in texts {
        out.text(name);
        out.text(value);
    }
}

fn write_figures<F: Copy>(out: &mut Writer, figures: &BTreeMap<F, u64>, code: impl Fn(F) -> u8) {
    out.varint(figures.len() as u64);
    for (&figure, &value) in figures {
        out.u8(code(figure));
        out.varint(value);
    }
}

fn write_burst(out: &mut Writer, burst: &Burst) {
    out.varint(burst.request);
    out.i64(burst.from.0);
    out.i64(burst.until.0);
    match &burst.outcome {
        BurstOutcome::Refused { reason } => {
            out.u8(0);
            out.text(reason);
        }
        BurstOutcome::Recorded(activity) => {
            out.u8(1);
            activity_fields(activity).into_iter().for_each(|field| out.varint(field));
            out.varint(activity.kernels.len() as u64);
            for kernel in &activity.kernels {
                out.text(&kernel.name);
                out.u8(kernel.phase.map_or(0, |phase| phase as u8 + 1));
                [kernel.calls, kernel.total_nanos, kernel.longest_nanos]
                    .into_iter()
                    .for_each(|field| out.varint(field));
            }
        }
    }
}

/// Returns the numeric fields in wire order.
fn activity_fields(activity: &Activity) -> [u64; 11] {
    [
        activity.records,
        activity.dropped,
        activity.span_nanos,
        activity.compute_nanos,
        activity.collective_nanos,
        activity.hidden_nanos,
        activity.covered_nanos,
        activity.copy_nanos,
        activity.idle_nanos,
        activity.gaps,
        activity.longest_gap_nanos,
    ]
}

fn read_burst(input: &mut Reader<'_>) -> Result<Burst, DecodeError> {
    let request = input.varint("burst request")?;
    let (from, until) = (MonoNanos(input.i64("burst")?), MonoNanos(input.i64("burst")?));
    let outcome = if input.tag("burst outcome", &[false, true])? {
        BurstOutcome::Recorded(read_activity(input)?)
    } else {
        BurstOutcome::Refused { reason: input.text("burst reason")? }
    };
    Ok(Burst { request, from, until, outcome })
}

/// The phases of kernels by their code. Code 0 is for a kernel whose phase is unknown.
const PHASES: [Option<SpanKind>; 7] = {
    let [a, b, c, d, e, f, ..] = SpanKind::ALL;
    [None, Some(a), Some(b), Some(c), Some(d), Some(e), Some(f)]
};

fn read_activity(input: &mut Reader<'_>) -> Result<Activity, DecodeError> {
    let mut next = || input.varint("activity");
    Ok(Activity {
        records: next()?,
        dropped: next()?,
        span_nanos: next()?,
        compute_nanos: next()?,
        collective_nanos: next()?,
        hidden_nanos: next()?,
        covered_nanos: next()?,
        copy_nanos: next()?,
        idle_nanos: next()?,
        gaps: next()?,
        longest_gap_nanos: next()?,
        kernels: read_list(input, "kernels", MAX_KERNELS as u64, |input| {
            Ok(KernelTime {
                name: input.text("kernel name")?,
                phase: input.tag("kernel phase", &PHASES)?,
                calls: input.varint("kernel")?,
                total_nanos: input.varint("kernel")?,
                longest_nanos: input.varint("kernel")?,
            })
        })?,
    })
}

fn read_instrumentation(input: &mut Reader<'_>) -> Result<Instrumentation, DecodeError> {
    let found = input.text("instrumentation")?;
    Instrumentation::ALL
        .into_iter()
        .find(|instrumentation| instrumentation.name() == found)
        .ok_or(DecodeError::Unknown { what: "instrumentation", found })
}

fn read_note(input: &mut Reader<'_>) -> Result<Note, DecodeError> {
    let at = input.position();
    match input.u8("note")? {
        0 => Ok(Note::Hello(Hello {
            name: input.text("name")?,
            host: input.text("host")?,
            clock: input.text("clock")?,
            pid: input.varint_u32("pid")?,
            local_rank: input.varint_u32("local rank")?,
            sample_unit: input.text("sample unit")?,
            parameters: input.varint("parameters")?,
            instrumentation: read_instrumentation(input)?,
        })),
        1 => Ok(Note::Layout(layout::read(input)?)),
        2 => {
            let completed = input.tag("completed", &[false, true])?;
            Ok(Note::Bye(Bye { completed, reason: input.text("reason")? }))
        }
        3 => Ok(Note::Device(DeviceSample {
            at: MonoNanos(input.i64("device sample")?),
            device: input.text("device")?,
            figures: read_figures(input, "device figures", &DeviceFigure::ALL)?,
        })),
        4 => Ok(Note::Burst(read_burst(input)?)),
        5 => Ok(Note::Host(HostSample {
            at: MonoNanos(input.i64("host sample")?),
            cores: input.text("cores")?,
            figures: read_figures(input, "host figures", &HostFigure::ALL)?,
        })),
        6 => Ok(Note::Attributes(Attributes {
            labels: read_texts(input, "labels")?,
            software: read_texts(input, "software versions")?,
        })),
        7 => Ok(Note::Stacks(stacks::read(input)?)),
        8 => Ok(Note::Workload(workload::read(input)?)),
        9 => Ok(Note::Resumed { step: Step(input.varint("resumed step")?) }),
        10 => Ok(Note::Traced(traces::read(input)?)),
        11 => Ok(Note::LongStep(stacks::read_long_step(input)?)),
        12 => Ok(Note::Line(stacks::read_line(input)?)),
        13 => Ok(Note::Waits { waiting: read_waiting(input)? }),
        found => Err(DecodeError::Value { what: "note", at, found: u64::from(found) }),
    }
}

fn read_waiting(input: &mut Reader<'_>) -> Result<Option<Waiting>, DecodeError> {
    if !input.tag("waits", &[false, true])? {
        return Ok(None);
    }
    let seq = Seq(input.varint("awaited collective")?);
    Ok(Some(Waiting { seq, launch: MonoNanos(input.i64("launch of the awaited collective")?) }))
}

/// Reads names with their texts. A name that occurs twice is an error, because one of its texts would be lost.
fn read_texts(input: &mut Reader<'_>, what: &'static str) -> Result<BTreeMap<String, String>, DecodeError> {
    let at = input.position();
    let listed =
        read_list(input, what, MAX_ATTRIBUTES as u64, |input| Ok((input.text(what)?, input.text(what)?)))?;
    let (found, texts) = (listed.len(), BTreeMap::from_iter(listed));
    if texts.len() != found {
        return Err(DecodeError::Value { what: "list of texts with duplicates", at, found: found as u64 });
    }
    Ok(texts)
}

/// Reads figures. A figure that occurs twice is an error, because one of its values would be lost.
fn read_figures<F: Copy + Ord>(
    input: &mut Reader<'_>,
    what: &'static str,
    all: &[F],
) -> Result<BTreeMap<F, u64>, DecodeError> {
    let at = input.position();
    let listed =
        read_list(input, what, all.len() as u64, |input| Ok((input.tag(what, all)?, input.varint(what)?)))?;
    let (found, figures) = (listed.len(), BTreeMap::from_iter(listed));
    if figures.len() != found {
        return Err(DecodeError::Value { what: "figure list with duplicates", at, found: found as u64 });
    }
    Ok(figures)
}

#[cfg(test)]
mod tests;
