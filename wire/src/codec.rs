//! A batch as bytes.
//!
//! ```text
//! frame   = "PCLB" version:u16 coding:u16 plain_len:u32 payload        little endian throughout
//! payload = zstd level 1 of the plain bytes (coding 0), or the plain bytes themselves (coding 1)
//! plain   = head, then one table per record kind, each a row of columns
//! column  = width:u8 least:varint, then `width` bits for each row: what it is more than the least
//!         | 64+width:u8 shift:u8 least:varint, then the same without the `shift` lowest bits, which are zero
//!         | 255:u8                                  all rows are zero
//!         | first:varint column of the others       where it holds differences
//! ```
//!
//! Times are stored relative to each other (ready to the record before and first to the anchor, launch to
//! ready, start to launch, end to start). Every length is checked against a bound before anything is allocated:
//! no input makes [`decode`] panic, and none makes it hold more than [`MAX_DECODING_BYTES`]. What no encoder writes, and
//! what says a thing in two ways, is an error: nothing is read as something else.

mod column;
mod primitive;
mod table;

use std::collections::BTreeMap;

use crate::batch::{Batch, Bye, Drop, DropReason, Hello, Layout, LayoutBucket, MAX_RANKS, Note};
#[cfg(feature = "compress")]
use crate::batch::{MAX_PLAIN_BYTES, MAX_WIRE_BYTES, WIRE_VERSION};
use crate::burst::{Activity, Burst, BurstOutcome, KernelTime, MOST_KERNELS};
use crate::clock::{ClockAnchor, MonoNanos, Probe, ServerNanos, UnixNanos};
use crate::device::{DeviceFigure, DeviceSample};
use crate::event::{EventKind, SpanKind};
use crate::host::{HostFigure, HostSample};
use crate::ids::{BatchSeq, Bucket, Comm, Incarnation, Rank, RunId, RunIdError};
use primitive::{Reader, Writer};

/// Why bytes are not a batch, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The first four bytes are not the magic.
    #[error("not a paceline batch: it starts with {found:02x?}, not with \"PCLB\"")]
    Magic {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// A version this program does not read.
    #[error("batch version {found}, but this server reads versions 1 to {newest}: update the older side")]
    Version {
        /// The version in the frame.
        found: u16,
        /// The newest this program reads.
        newest: u16,
    },
    /// The bytes end too early.
    #[error("truncated: {what} at byte {at} needs {needed} bytes, {left} are left")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where, in the frame or in the plain payload.
        at: usize,
        /// How many bytes it needs.
        needed: usize,
        /// How many there are.
        left: usize,
    },
    /// A length or count is over its bound.
    #[error("{what} is {found}, more than the {most} allowed")]
    TooLarge {
        /// What was being read.
        what: &'static str,
        /// The number in the bytes.
        found: u64,
        /// The bound.
        most: u64,
    },
    /// The payload does not decompress to what the frame says.
    #[error("the payload does not decompress: {reason}")]
    Compression {
        /// What the decompressor says.
        reason: String,
    },
    /// A value no encoder writes.
    #[error("{what} at byte {at} holds {found}, which means nothing")]
    Value {
        /// What was being read.
        what: &'static str,
        /// Where in the plain payload.
        at: usize,
        /// The number in the bytes.
        found: u64,
    },
    /// A text that is not UTF-8.
    #[error("{what} at byte {at} is not UTF-8")]
    Text {
        /// What was being read.
        what: &'static str,
        /// Where in the plain payload.
        at: usize,
    },
    /// The run id is not one.
    #[error(transparent)]
    RunId(#[from] RunIdError),
    /// The rank is not one of the run's, or the run claims to have more than can be.
    #[error("rank {rank} of {world_size}: a run has 1 to {MAX_RANKS} ranks, numbered from 0")]
    Rank {
        /// The rank in the batch.
        rank: u32,
        /// The number of ranks in the batch.
        world_size: u32,
    },
    /// Bytes are left over after the last table.
    #[error("{left} bytes follow the last table")]
    Trailing {
        /// How many.
        left: usize,
    },
}

/// Most probes, drops or notes in one batch.
const MAX_HEAD_ITEMS: u64 = 1_024;
/// Most buckets in a layout, and most parameters in a bucket.
const MAX_LAYOUT_ITEMS: u64 = 65_536;
/// Longest text, in bytes.
const MAX_TEXT_BYTES: u64 = 4_096;
/// What all lists and texts of a batch may take in memory: the names of 65,536 parameters, in both layouts, at 128 bytes
/// each. Without it, 8 MiB of empty names would take 200.
const MAX_LIST_BYTES: usize = 16 << 20;
/// The most that [`decode`] holds: 8 MiB of plain bytes, 16 MiB of lists and texts,
/// [`MAX_EVENTS`](crate::batch::MAX_EVENTS) rows of ten columns (5 MiB) and as many records of 88 bytes (5.5 MiB), and
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
/// Shorter batches are stored as they are: packed columns leave a compressor little, and making one costs more
/// than all the rest of the work on a batch of 100 ms.
#[cfg(feature = "compress")]
const COMPRESS_FROM: usize = 1_024;

/// Writes a batch as a frame.
///
/// # Errors
/// Only when the compressor fails, which it does not for want of anything but memory.
#[cfg(feature = "compress")]
pub fn encode(batch: &Batch) -> Result<Vec<u8>, std::io::Error> {
    let plain = encode_plain(batch);
    let plain_len = plain.len();
    let (coding, payload) =
        if plain_len < COMPRESS_FROM { (STORED, plain) } else { (ZSTD, zstd::bulk::compress(&plain, 1)?) };
    let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + payload.len());
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&batch.wire_version().to_le_bytes());
    frame.extend_from_slice(&coding.to_le_bytes());
    frame.extend_from_slice(&(plain_len as u32).to_le_bytes());
    frame.extend_from_slice(&payload);
    Ok(frame)
}

/// How many bytes the payload of a frame has once it is decompressed, as the frame says; `None` where it is too short to
/// say.
#[must_use]
pub fn plain_length(frame: &[u8]) -> Option<usize> {
    let length = frame.get(8..12)?.try_into().ok()?;
    Some(u32::from_le_bytes(length) as usize)
}

/// Reads a frame.
///
/// # Errors
/// A [`DecodeError`] that names what is wrong and where; never a panic, whatever the bytes.
#[cfg(feature = "compress")]
pub fn decode(frame: &[u8]) -> Result<Batch, DecodeError> {
    let mut head = Reader::new(frame);
    let magic = head.bytes("magic", 4)?;
    if magic != MAGIC {
        return Err(DecodeError::Magic { found: magic.to_vec() });
    }
    let version = head.u16("version")?;
    if version == 0 || version > WIRE_VERSION {
        return Err(DecodeError::Version { found: version, newest: WIRE_VERSION });
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
    // The decompressor gets room for what the frame promises and not a byte more: that is the bomb guard.
    let plain = zstd::bulk::decompress(payload, plain_len).map_err(|error| failed(error.to_string()))?;
    if plain.len() != plain_len {
        return Err(failed(format!(
            "the frame promises {plain_len} bytes, the payload holds {}",
            plain.len()
        )));
    }
    Ok(plain)
}

/// Writes a batch without frame and compression.
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

/// Reads what [`encode_plain`] wrote.
///
/// # Errors
/// A [`DecodeError`] that names what is wrong and where.
pub fn decode_plain(plain: &[u8]) -> Result<Batch, DecodeError> {
    let mut input = Reader::new(plain);
    let mut batch = Batch {
        run: RunId::new(input.text("run id")?)?,
        rank: Rank(input.varint_u32("rank")?),
        world_size: input.varint_u32("world size")?,
        incarnation: Incarnation(input.u64("incarnation")?),
        seq: BatchSeq(input.varint("batch number")?),
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
            out.text(&hello.origin);
        }
        Note::Layout(layout) => {
            out.u8(1);
            out.varint(u64::from(layout.comm.0));
            out.varint(u64::from(layout.generation));
            out.varint(layout.buckets.len() as u64);
            for bucket in &layout.buckets {
                out.varint(u64::from(bucket.bucket.0));
                out.varint(bucket.bytes);
                out.varint(bucket.parameters.len() as u64);
                bucket.parameters.iter().for_each(|name| out.text(name));
            }
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
            let covered = burst.covered();
            out.u8(if covered.is_some() { 5 } else { 4 });
            write_burst(out, burst);
            covered.into_iter().for_each(|nanos| out.varint(nanos));
        }
        Note::Host(sample) => {
            out.u8(6);
            out.i64(sample.at.0);
            out.text(&sample.cores);
            write_figures(out, &sample.figures, |figure| figure as u8);
        }
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

/// In the order of the wire.
fn activity_fields(activity: &Activity) -> [u64; 10] {
    [
        activity.records,
        activity.dropped,
        activity.span_nanos,
        activity.compute_nanos,
        activity.collective_nanos,
        activity.hidden_nanos,
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

/// By number; 0 is for a kernel whose phase is not known.
const PHASES: [Option<SpanKind>; 7] = {
    let [a, b, c, d, e, f] = SpanKind::ALL;
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
        covered_nanos: None,
        copy_nanos: next()?,
        idle_nanos: next()?,
        gaps: next()?,
        longest_gap_nanos: next()?,
        kernels: read_list(input, "kernels", MOST_KERNELS as u64, |input| {
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
            origin: input.text("origin")?,
        })),
        1 => Ok(Note::Layout(Layout {
            comm: Comm(input.varint_u32("communicator")?),
            generation: input.varint_u32("generation")?,
            buckets: read_list(input, "layout buckets", MAX_LAYOUT_ITEMS, |input| {
                Ok(LayoutBucket {
                    bucket: Bucket(input.varint_u32("bucket")?),
                    bytes: input.varint("bucket bytes")?,
                    parameters: read_list(input, "parameters", MAX_LAYOUT_ITEMS, |input| {
                        input.text("parameter name")
                    })?,
                })
            })?,
        })),
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
        5 => {
            let mut burst = read_burst(input)?;
            let covered = input.varint("burst covered")?;
            let BurstOutcome::Recorded(activity) = &mut burst.outcome else {
                return Err(DecodeError::Value { what: "what a refused burst covered", at, found: covered });
            };
            activity.covered_nanos = Some(covered);
            Ok(Note::Burst(burst))
        }
        6 => Ok(Note::Host(HostSample {
            at: MonoNanos(input.i64("host sample")?),
            cores: input.text("cores")?,
            figures: read_figures(input, "host figures", &HostFigure::ALL)?,
        })),
        found => Err(DecodeError::Value { what: "note", at, found: u64::from(found) }),
    }
}

/// Each figure at most once: of two, one would be lost.
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
        return Err(DecodeError::Value { what: "a list with a figure twice", at, found: found as u64 });
    }
    Ok(figures)
}

#[cfg(test)]
mod tests;
