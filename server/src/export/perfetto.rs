//! A trace for Perfetto: one process per rank with a compute and a communication track, buckets as slices with
//! their figures as arguments, and flow arrows that join one collective over the ranks.
//!
//! The message types are the part of `perfetto/trace/trace_packet.proto` and `track_event.proto` that is
//! needed; their field numbers are Perfetto's public wire format.

mod proto;

use prost::Message;
use wire::live::{SliceKind, Waterfall};
use wire::views::RunSummary;

use proto::{
    ClockSnapshot, ClockTime, DebugAnnotation, INSTANT, ProcessDescriptor, SLICE_BEGIN, SLICE_END,
    ThreadDescriptor, Trace, TracePacket, TrackDescriptor, TrackEvent,
};

/// Perfetto's number for time since boot; the trace's default clock.
const BUILTIN_CLOCK_BOOTTIME: u32 = 6;
const BUILTIN_CLOCK_REALTIME: u32 = 1;
/// All packets are of one sequence: this writer's.
const SEQUENCE: u32 = 1;
const SEQ_INCREMENTAL_STATE_CLEARED: u32 = 1;
const SEQ_NEEDS_INCREMENTAL_STATE: u32 = 2;

/// Why a range of steps is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("steps {0:?}: write A..B, for instance 100..120, both ends included")]
pub struct StepsError(String);

/// Reads `A..B`.
///
/// # Errors
/// When it is not two numbers, the first not above the second.
pub fn parse_steps(text: &str) -> Result<(u64, u64), StepsError> {
    let range = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    range.filter(|(from, to)| from <= to).ok_or_else(|| StepsError(text.to_owned()))
}

/// The tracks of one rank.
struct Tracks {
    process: u64,
    compute: u64,
    communication: u64,
}

impl Tracks {
    fn of(rank: u32) -> Self {
        let base = (u64::from(rank) + 1) * 16;
        Self { process: base, compute: base + 1, communication: base + 2 }
    }
}

/// The trace of `steps`, in step order.
#[must_use]
pub fn trace(run: &RunSummary, steps: &[Waterfall]) -> Vec<u8> {
    let mut packets = vec![first_packet(steps)];
    let mut ranks: Vec<u32> = steps.iter().flat_map(|step| step.rank.iter().copied()).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.iter().for_each(|&rank| describe_rank(&mut packets, run, rank));
    steps.iter().for_each(|step| step_packets(&mut packets, step));
    Trace { packet: packets }.encode_to_vec()
}

/// Ties the trace's clock to wall-clock time, so that Perfetto can show it.
fn first_packet(steps: &[Waterfall]) -> TracePacket {
    let origin = steps.first().map_or(0, |step| step.origin_unix_nanos);
    let reading = |clock_id| ClockTime { clock_id: Some(clock_id), timestamp: Some(origin) };
    TracePacket {
        clock_snapshot: Some(ClockSnapshot {
            clocks: vec![reading(BUILTIN_CLOCK_BOOTTIME), reading(BUILTIN_CLOCK_REALTIME)],
        }),
        trusted_packet_sequence_id: Some(SEQUENCE),
        sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
        ..TracePacket::default()
    }
}

fn describe_rank(packets: &mut Vec<TracePacket>, run: &RunSummary, rank: u32) {
    let tracks = Tracks::of(rank);
    // Ranks of many hosts may share process ids; the rank stands in, one-based since 0 is the kernel's.
    let pid = rank as i32 + 1;
    let mut describe = |descriptor: TrackDescriptor| {
        packets.push(TracePacket {
            track_descriptor: Some(descriptor),
            trusted_packet_sequence_id: Some(SEQUENCE),
            ..TracePacket::default()
        });
    };
    describe(TrackDescriptor {
        uuid: Some(tracks.process),
        process: Some(ProcessDescriptor {
            pid: Some(pid),
            process_name: Some(format!("rank {rank} ({})", run.name)),
        }),
        ..TrackDescriptor::default()
    });
    for (uuid, tid, name) in [(tracks.compute, 1, "compute"), (tracks.communication, 2, "communication")] {
        describe(TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: Some(tracks.process),
            thread: Some(ThreadDescriptor {
                pid: Some(pid),
                tid: Some(pid * 16 + tid),
                thread_name: Some(name.into()),
            }),
            ..TrackDescriptor::default()
        });
    }
}

fn step_packets(packets: &mut Vec<TracePacket>, step: &Waterfall) {
    for (row, &rank) in step.rank.iter().enumerate() {
        let tracks = Tracks::of(rank);
        let args = vec![unsigned("step", step.step), nanos("clock_error_bound_ns", step.clock_bound[row])];
        let span = (step.rank_begin[row], step.rank_end[row]);
        slice(packets, step, tracks.compute, &format!("step {}", step.step), span, args, &[]);
        training_slices(packets, step, row, tracks.compute);
        bucket_slices(packets, step, row, tracks.communication);
    }
}

fn training_slices(packets: &mut Vec<TracePacket>, step: &Waterfall, row: usize, track: u64) {
    for at in slices_of(step, row, None) {
        let name = SliceKind::ALL[usize::from(step.slice_kind[at])].name();
        slice(packets, step, track, name, (step.slice_begin[at], step.slice_end[at]), Vec::new(), &[]);
    }
}

fn slices_of(step: &Waterfall, row: usize, bucket: Option<usize>) -> impl Iterator<Item = usize> + '_ {
    let bucket = bucket.map_or(u32::MAX, |bucket| bucket as u32);
    (0..step.slice_row.len())
        .filter(move |&at| step.slice_row[at] as usize == row && step.slice_bucket[at] == bucket)
}

fn bucket_slices(packets: &mut Vec<TracePacket>, step: &Waterfall, row: usize, track: u64) {
    for at in (0..step.bucket_row.len()).filter(|&at| step.bucket_row[at] as usize == row) {
        let args = vec![
            unsigned("bucket", u64::from(step.bucket[at])),
            unsigned("sequence", step.bucket_seq[at]),
            unsigned("bytes", step.bucket_bytes[at]),
            nanos("ready_to_launch_ns", step.bucket_launch[at] - step.bucket_ready[at]),
            nanos("launch_to_start_ns", step.bucket_start[at] - step.bucket_launch[at]),
            nanos("wait_ns", step.bucket_wait[at]),
            nanos("wait_clock_free_ns", step.bucket_wait_clock_free[at]),
        ];
        let name = format!("bucket {}", step.bucket[at]);
        let span = (step.bucket_start[at], step.bucket_end[at]);
        // One collective is one flow: Perfetto draws arrows between its slices. 0 is no flow.
        slice(packets, step, track, &name, span, args, &[step.bucket_seq[at] + 1]);
        for part in slices_of(step, row, Some(at)) {
            let kind = SliceKind::ALL[usize::from(step.slice_kind[part])];
            if kind != SliceKind::Queued {
                let span = (step.slice_begin[part], step.slice_end[part]);
                slice(packets, step, track, kind.name(), span, Vec::new(), &[]);
            }
        }
        let ready = event(step, track, INSTANT, step.bucket_ready[at]);
        packets
            .push(with_event(ready, |event| event.name = Some(format!("bucket {} ready", step.bucket[at]))));
    }
}

fn slice(
    packets: &mut Vec<TracePacket>,
    step: &Waterfall,
    track: u64,
    name: &str,
    (begin, end): (f64, f64),
    args: Vec<DebugAnnotation>,
    flows: &[u64],
) {
    let opening = event(step, track, SLICE_BEGIN, begin);
    packets.push(with_event(opening, |event| {
        event.name = Some(name.to_owned());
        event.debug_annotations = args;
        event.flow_ids = flows.to_vec();
    }));
    packets.push(event(step, track, SLICE_END, end));
}

fn event(step: &Waterfall, track: u64, kind: i32, at: f64) -> TracePacket {
    TracePacket {
        timestamp: Some(step.origin_unix_nanos.saturating_add_signed(at as i64)),
        track_event: Some(TrackEvent {
            r#type: Some(kind),
            track_uuid: Some(track),
            ..TrackEvent::default()
        }),
        trusted_packet_sequence_id: Some(SEQUENCE),
        sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
        ..TracePacket::default()
    }
}

fn with_event(mut packet: TracePacket, change: impl FnOnce(&mut TrackEvent)) -> TracePacket {
    packet.track_event.as_mut().map(change);
    packet
}

fn unsigned(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.into()), uint_value: Some(value), ..DebugAnnotation::default() }
}

/// A figure that is not known is left out.
fn nanos(name: &str, value: f64) -> DebugAnnotation {
    let int_value = value.is_finite().then_some(value as i64);
    DebugAnnotation { name: Some(name.into()), int_value, ..DebugAnnotation::default() }
}

#[cfg(test)]
mod tests;
