//! Traces for Perfetto. Each rank is a process with a compute track and a communication track. Buckets are slices with
//! their figures as arguments, and flow arrows connect the slices of a collective over all ranks. How devices and hosts were
//! used is a counter track per rank and measure.
//!
//! The message types are the needed part of `perfetto/trace/trace_packet.proto` and `track_event.proto`. Their field
//! numbers are Perfetto's public wire format. Repeated names are interned: written once and then referred to by number.

mod proto;

use std::collections::HashMap;
use std::io::{self, Write};

use prost::Message;
use wire::live::{SliceKind, Waterfall};
use wire::usage::{Usage, UsageUnit};
use wire::views::RunSummary;

use super::model::{self, BucketRow, RankStep, Stretch};
use crate::printable::one_line;
use proto::{
    COUNTER, ClockSnapshot, ClockTime, CounterDescriptor, DebugAnnotation, INSTANT, InternedData,
    InternedName, ProcessDescriptor, SLICE_BEGIN, SLICE_END, ThreadDescriptor, TracePacket, TrackDescriptor,
    TrackEvent,
};

/// Perfetto's id of the clock that counts from boot, which is a trace's default clock.
const BUILTIN_CLOCK_BOOTTIME: u32 = 6;
const BUILTIN_CLOCK_REALTIME: u32 = 1;
/// The id of the packet sequence. This writer has only one.
const SEQUENCE: u32 = 1;
const SEQ_INCREMENTAL_STATE_CLEARED: u32 = 1;
const SEQ_NEEDS_INCREMENTAL_STATE: u32 = 2;
/// The key of the field `Trace.packet`, which is length-delimited.
const PACKET_KEY: u8 = 0x0a;
/// The size up to which packets are collected before they are written, in bytes.
const CHUNK: usize = 64 << 10;
/// The first id of the tracks of measures, beyond those of ranks.
const MEASURE_TRACKS: u64 = 1 << 40;

/// The arguments of a bucket's slice, in order.
const BUCKET_ARGS: [&str; 10] = [
    "bucket",
    "sequence",
    "bytes",
    "ready_to_launch_ns",
    "launch_to_start_ns",
    "wait_ns",
    "wait_clock_free_ns",
    "transfer_ns",
    "hidden_ns",
    "exposed_ns",
];

/// The tracks of one rank.
struct Tracks {
    process: u64,
    compute: u64,
    communication: u64,
}

impl Tracks {
    fn new(rank: u32) -> Self {
        let base = (u64::from(rank) + 1) * 16;
        Self { process: base, compute: base + 1, communication: base + 2 }
    }
}

/// A sample of a measure: the end of the interval that it covers in nanoseconds, the length of the interval in seconds, and
/// the value; NaN if it is not known.
pub type Sample = (i64, f64, f32);

/// The interned names of one kind.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, u64>,
    unsaid: Vec<InternedName>,
}

impl Names {
    /// Returns the number of a name. A new name is written with the next packet.
    fn number(&mut self, name: &str) -> u64 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.numbers.len() as u64 + 1;
        self.numbers.insert(name.to_owned(), number);
        self.unsaid.push(InternedName { iid: Some(number), name: Some(name.to_owned()) });
        number
    }
}

/// A writer of a trace, packet by packet.
pub struct Writer<W> {
    out: W,
    rank: Option<u32>,
    buffer: Vec<u8>,
    /// The begin and the end of what is written.
    window: Option<(i64, i64)>,
    events: Names,
    arguments: Names,
    kinds: [u64; SliceKind::ALL.len()],
    bucket_args: [u64; BUCKET_ARGS.len()],
    /// For each bucket, the numbers of its two names: for its slice, and for the instant when it is ready.
    buckets: HashMap<u32, (u64, u64)>,
}

impl<W: Write> Writer<W> {
    /// Begins the trace and declares the tracks of all ranks. If `rank` is given, only that rank is written.
    ///
    /// # Errors
    /// Returns an error if the trace cannot be written.
    pub fn begin(out: W, run: &RunSummary, rank: Option<u32>) -> io::Result<Self> {
        let (mut events, mut arguments) = (Names::default(), Names::default());
        let mut writer = Self {
            out,
            rank,
            buffer: Vec::with_capacity(2 * CHUNK),
            window: None,
            kinds: SliceKind::ALL.map(|kind| events.number(kind.name())),
            bucket_args: BUCKET_ARGS.map(|name| arguments.number(name)),
            events,
            arguments,
            buckets: HashMap::new(),
        };
        for rank in (0..run.most_ranks).filter(|&number| rank.is_none_or(|only| only == number)) {
            writer.describe_rank(run, rank)?;
        }
        Ok(writer)
    }

    /// Adds a step.
    ///
    /// # Errors
    /// Returns an error if the trace cannot be written.
    pub fn step(&mut self, step: &Waterfall) -> io::Result<()> {
        if self.window.is_none() {
            self.first_packet(step.origin_unix_nanos)?;
        }
        for rank in model::ranks(step, self.rank) {
            let (from, to) = self.window.unwrap_or((rank.begin, rank.end));
            self.window = Some((from.min(rank.begin), to.max(rank.end)));
            self.rank(&rank)?;
        }
        Ok(())
    }

    /// Adds a measure of devices or hosts, by rank, during the steps that were added. A measure that is 0 on all ranks is left
    /// out.
    ///
    /// # Errors
    /// Returns an error if the trace cannot be written.
    pub fn measure(&mut self, usage: Usage, ranks: impl Iterator<Item = Vec<Sample>>) -> io::Result<()> {
        let Some((from, to)) = self.window else { return Ok(()) };
        let placed = |(end, seconds, value): Sample| {
            let begin = end - (seconds * 1e9) as i64;
            (end > from && begin < to && !value.is_nan()).then_some((begin.max(from), f64::from(value)))
        };
        let ranks: Vec<(u32, Vec<(i64, f64)>)> = (0..)
            .zip(ranks)
            .filter(|(rank, _)| self.rank.is_none_or(|only| only == *rank))
            .map(|(rank, samples)| (rank, samples.into_iter().filter_map(placed).collect()))
            .collect();
        if ranks.iter().flat_map(|(_, values)| values).all(|(_, value)| *value == 0.0) {
            return Ok(());
        }
        ranks.iter().try_for_each(|(rank, values)| self.counter(usage, *rank, values))
    }

    fn counter(&mut self, usage: Usage, rank: u32, values: &[(i64, f64)]) -> io::Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        let track = MEASURE_TRACKS + u64::from(rank) * Usage::ALL.len() as u64 + usage as u64;
        let (unit, factor) = match usage.unit() {
            UsageUnit::Share => ("%", 100.0),
            other => (other.name(), 1.0),
        };
        self.describe(TrackDescriptor {
            uuid: Some(track),
            name: Some(usage.name().into()),
            parent_uuid: Some(Tracks::new(rank).process),
            counter: Some(CounterDescriptor { unit_name: Some(unit.into()) }),
            ..TrackDescriptor::default()
        })?;
        values.iter().try_for_each(|&(at, value)| {
            let value = Some(value * factor);
            self.event(
                track,
                COUNTER,
                TrackEvent { double_counter_value: value, ..TrackEvent::default() },
                at,
            )
        })
    }

    /// Writes the remaining packets and returns the underlying writer.
    ///
    /// # Errors
    /// Returns an error if the trace cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&self.buffer)?;
        Ok(self.out)
    }

    fn packet(&mut self, packet: &TracePacket) -> io::Result<()> {
        self.buffer.push(PACKET_KEY);
        packet.encode_length_delimited(&mut self.buffer).map_err(io::Error::other)?;
        if self.buffer.len() >= CHUNK {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes the packet that relates the trace's clock to wall-clock time, so Perfetto can show the time of day.
    fn first_packet(&mut self, origin: u64) -> io::Result<()> {
        let reading = |clock_id| ClockTime { clock_id: Some(clock_id), timestamp: Some(origin) };
        self.packet(&TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![reading(BUILTIN_CLOCK_BOOTTIME), reading(BUILTIN_CLOCK_REALTIME)],
            }),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
            ..TracePacket::default()
        })
    }

    fn describe_rank(&mut self, run: &RunSummary, rank: u32) -> io::Result<()> {
        let tracks = Tracks::new(rank);
        // Ranks on different hosts may have the same process id, so the rank is used instead. It counts from 1, because
        // 0 is the kernel's process id.
        let pid = rank as i32 + 1;
        self.describe(TrackDescriptor {
            uuid: Some(tracks.process),
            process: Some(ProcessDescriptor {
                pid: Some(pid),
                // Viewers and scripts print names as they are.
                process_name: Some(format!("rank {rank} ({})", one_line(&run.name))),
            }),
            ..TrackDescriptor::default()
        })?;
        for (uuid, tid, name) in [(tracks.compute, 1, "compute"), (tracks.communication, 2, "communication")]
        {
            self.describe(TrackDescriptor {
                uuid: Some(uuid),
                parent_uuid: Some(tracks.process),
                thread: Some(ThreadDescriptor {
                    pid: Some(pid),
                    tid: Some(pid * 16 + tid),
                    thread_name: Some(name.into()),
                }),
                ..TrackDescriptor::default()
            })?;
        }
        Ok(())
    }

    fn describe(&mut self, descriptor: TrackDescriptor) -> io::Result<()> {
        self.packet(&TracePacket {
            track_descriptor: Some(descriptor),
            trusted_packet_sequence_id: Some(SEQUENCE),
            ..TracePacket::default()
        })
    }

    fn rank(&mut self, rank: &RankStep) -> io::Result<()> {
        let tracks = Tracks::new(rank.rank);
        let step = self.arguments.number("step");
        let bound = self.arguments.number("clock_error_bound_ns");
        let event = TrackEvent {
            // The name is not interned, because each step occurs only once.
            name: Some(format!("step {}", rank.step)),
            debug_annotations: vec![
                DebugAnnotation {
                    name_iid: Some(step),
                    uint_value: Some(rank.step),
                    ..DebugAnnotation::default()
                },
                DebugAnnotation {
                    name_iid: Some(bound),
                    int_value: rank.clock_error_bound,
                    ..DebugAnnotation::default()
                },
            ],
            ..TrackEvent::default()
        };
        self.slice(tracks.compute, event, rank.begin, rank.end, |writer| {
            rank.training.iter().try_for_each(|stretch| writer.stretch(tracks.compute, stretch))
        })?;
        rank.buckets.iter().try_for_each(|bucket| self.bucket(rank, bucket, tracks.communication))
    }

    fn stretch(&mut self, track: u64, stretch: &Stretch) -> io::Result<()> {
        let event = TrackEvent { name_iid: Some(self.kinds[stretch.kind as usize]), ..TrackEvent::default() };
        self.slice(track, event, stretch.begin, stretch.end, |_| Ok(()))
    }

    fn bucket(&mut self, rank: &RankStep, bucket: &BucketRow, track: u64) -> io::Result<()> {
        let events = &mut self.events;
        let (name, ready) = *self.buckets.entry(bucket.bucket).or_insert_with(|| {
            let name = format!("bucket {}", bucket.bucket);
            (events.number(&name), events.number(&format!("{name} ready")))
        });
        let event = TrackEvent {
            name_iid: Some(name),
            debug_annotations: self.bucket_arguments(bucket),
            // A collective is a flow: Perfetto draws arrows between its slices. The id 0 means no flow.
            flow_ids: vec![bucket.sequence.wrapping_add(1)],
            ..TrackEvent::default()
        };
        self.slice(track, event, bucket.start, bucket.end, |writer| {
            let parts = rank.parts(bucket).iter().filter(|part| part.kind != SliceKind::Queued);
            parts.into_iter().try_for_each(|part| writer.stretch(track, part))
        })?;
        let event = TrackEvent { name_iid: Some(ready), ..TrackEvent::default() };
        self.event(track, INSTANT, event, bucket.ready)
    }

    fn bucket_arguments(&self, bucket: &BucketRow) -> Vec<DebugAnnotation> {
        let values = [
            Some(i64::from(bucket.bucket)),
            i64::try_from(bucket.sequence).ok(),
            i64::try_from(bucket.bytes).ok(),
            Some(bucket.launch - bucket.ready),
            Some(bucket.start - bucket.launch),
            bucket.wait,
            bucket.wait_clock_free,
            Some(bucket.transfer),
            Some(bucket.hidden),
            Some(bucket.exposed),
        ];
        let argument = |(&name_iid, int_value): (&u64, Option<i64>)| DebugAnnotation {
            name_iid: Some(name_iid),
            int_value,
            ..DebugAnnotation::default()
        };
        // Unknown figures are left out.
        let known = self.bucket_args.iter().zip(values).filter(|(_, value)| value.is_some());
        known.map(argument).collect()
    }

    fn slice(
        &mut self,
        track: u64,
        event: TrackEvent,
        begin: i64,
        end: i64,
        inside: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.event(track, SLICE_BEGIN, event, begin)?;
        inside(self)?;
        self.event(track, SLICE_END, TrackEvent::default(), end)
    }

    fn event(&mut self, track: u64, kind: i32, event: TrackEvent, at: i64) -> io::Result<()> {
        let interned =
            (!self.events.unsaid.is_empty() || !self.arguments.unsaid.is_empty()).then(|| InternedData {
                event_names: std::mem::take(&mut self.events.unsaid),
                debug_annotation_names: std::mem::take(&mut self.arguments.unsaid),
            });
        self.packet(&TracePacket {
            timestamp: Some(at.max(0).unsigned_abs()),
            track_event: Some(TrackEvent { r#type: Some(kind), track_uuid: Some(track), ..event }),
            interned_data: interned,
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
            ..TracePacket::default()
        })
    }
}

#[cfg(test)]
mod tests;
