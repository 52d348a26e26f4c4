//! Tests of the codec: round trips, golden bytes and hostile bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::burst::{Activity, Burst, BurstOutcome, KernelTime};
use crate::device::{DeviceFigure, DeviceSample};
use crate::event::{BucketRecord, Event, Function, Source, Span, SpanKind, Started, StepRecord};
use crate::host::{HostFigure, HostSample};
use crate::ids::{Bucket, Comm, Seq, Step};
use crate::layout::{Layout, LayoutBucket};
use crate::stacks::{
    Frame, LongStep, Profile, SpanLine, Stack, Stacks, StacksOutcome, ThreadRole, ThreadStacks,
};
use crate::traces::{TraceRowKind, TraceSum, TraceSummary};
use crate::workload::{Precision, Workload};

fn head() -> Batch {
    Batch {
        run: RunId::new("golden-1").unwrap(),
        rank: Rank(2),
        world_size: 4,
        incarnation: Incarnation(0x0102_0304_0506_0708),
        seq: BatchSeq(7),
        anchor: ClockAnchor { mono: MonoNanos(5_000_000), unix: UnixNanos(1_790_000_000_000_000_000) },
        probes: vec![Probe {
            sent: MonoNanos(1),
            server_received: ServerNanos(1_790_000_000_000_000_100),
            server_sent: ServerNanos(1_790_000_000_000_000_200),
            received: MonoNanos(400),
        }],
        drops: vec![Drop { kind: EventKind::Bucket, reason: DropReason::RingFull, count: 3 }],
        notes: vec![
            Note::Hello(Hello {
                name: "char_lm".into(),
                host: "h".into(),
                clock: "c".into(),
                pid: 42,
                local_rank: 2,
                sample_unit: "tokens".into(),
                parameters: 1_000,
                instrumentation: Instrumentation::Reducer,
            }),
            Note::Layout(Layout {
                comm: Comm(0),
                generation: 1,
                buckets: vec![LayoutBucket {
                    bucket: Bucket(0),
                    bytes: 4_000,
                    parameters: vec!["head.weight".into()],
                    ..LayoutBucket::default()
                }],
                ..Layout::default()
            }),
            Note::Bye(Bye { completed: true, reason: String::new() }),
        ],
        events: Vec::new(),
    }
}

fn bucket(number: u64, ready: i64) -> Event {
    Event::Bucket(BucketRecord {
        step: Step(9),
        comm: Comm(0),
        seq: Seq(number),
        bucket: Bucket(number as u32 % 18),
        bytes: 4_000 - 96 * (number % 3),
        ready: MonoNanos(ready),
        launch: MonoNanos(ready + 10),
        start: MonoNanos(ready + 100 + number as i64),
        end: MonoNanos(ready + 900 + 31 * number as i64),
        source: Source::HostClock,
    })
}

fn golden_batch() -> Batch {
    let step = Step(9);
    Batch {
        events: vec![
            Event::Span(Span {
                step,
                kind: SpanKind::Forward,
                begin: MonoNanos(1_000),
                end: MonoNanos(3_000),
                cpu_nanos: 1_900,
            }),
            Event::Step(StepRecord {
                step,
                begin: MonoNanos(900),
                end: MonoNanos(9_000),
                samples: 512,
                shadow: false,
            }),
            Event::Started(Started {
                step,
                comm: Comm(0),
                seq: Seq(19),
                bucket: Bucket(1),
                bytes: 4_000,
                launch: MonoNanos(6_500),
            }),
            bucket(18, 5_000),
            bucket(19, 5_900),
            bucket(20, 7_000),
        ],
        ..head()
    }
}

/// The bytes of version 1 must never change, because old agents outlive new servers.
#[test]
fn version_1_is_pinned() {
    let hex: String = encode_plain(&golden_batch()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("golden_v1.hex").trim());
}

/// Returns a sample with all figures of a version of the wire format.
fn device(version: u16) -> DeviceSample {
    let figures = DeviceFigure::ALL.into_iter().filter(|figure| figure.wire_version() <= version);
    let figures = figures.map(|figure| (figure, 1_000 + figure as u64)).collect();
    DeviceSample { at: MonoNanos(4_999_000), device: "a GPU at 0000:01:00.0".into(), figures }
}

/// Version 2 adds samples of devices.
#[test]
fn version_2_is_pinned() {
    let batch = Batch { notes: vec![Note::Device(device(2))], ..golden_batch() };
    let hex: String = encode_plain(&batch).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("golden_v2.hex").trim());
}

fn burst() -> Burst {
    let kernel = |number: u64| KernelTime {
        name: format!("kernel_{number}"),
        phase: (number > 2).then_some(SpanKind::Optimizer),
        calls: number,
        total_nanos: 1_000 * number,
        longest_nanos: 100 * number,
    };
    let activity = Activity {
        records: 1,
        dropped: 2,
        span_nanos: 3,
        compute_nanos: 4,
        collective_nanos: 5,
        hidden_nanos: 6,
        covered_nanos: None,
        copy_nanos: 7,
        idle_nanos: 8,
        gaps: 3,
        longest_gap_nanos: 7_000,
        kernels: vec![kernel(3), kernel(2)],
    };
    let outcome = BurstOutcome::Recorded(activity);
    Burst { request: 9, from: MonoNanos(4_000_000), until: MonoNanos(4_999_000), outcome }
}

/// Checks that a batch is of this version, that its bytes are those of the golden file, and that they decode to the same batch.
fn assert_pinned(batch: Batch, version: u16, golden: &str) {
    let hex: String = encode_plain(&batch).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, golden.trim());
    assert_eq!(batch.wire_version(), version);
    assert_eq!(decode_plain(&encode_plain(&batch)), Ok(batch));
}

/// Version 3 adds bursts.
#[test]
fn version_3_is_pinned() {
    let refused = Burst { outcome: BurstOutcome::Refused { reason: "no".into() }, ..burst() };
    let notes = vec![Note::Burst(burst()), Note::Burst(refused), Note::Device(device(3))];
    let batch = Batch { notes, ..golden_batch() };
    assert_pinned(batch, 3, include_str!("golden_v3.hex"));
}

/// Version 4 adds the covered time of bursts.
#[test]
fn version_4_is_pinned() {
    let mut burst = burst();
    if let BurstOutcome::Recorded(activity) = &mut burst.outcome {
        activity.covered_nanos = Some(1_000);
    }
    let batch = Batch { notes: vec![Note::Burst(burst)], ..golden_batch() };
    assert_pinned(batch, 4, include_str!("golden_v4.hex"));
}

/// Version 5 adds samples of hosts.
#[test]
fn version_5_is_pinned() {
    let figures = host_figures(5);
    let sample = HostSample { at: MonoNanos(4_999_000), cores: "0-3,8".into(), figures };
    let batch = Batch { notes: vec![Note::Host(sample)], ..golden_batch() };
    assert_pinned(batch, 5, include_str!("golden_v5.hex"));
}

fn host_figures(version: u16) -> BTreeMap<HostFigure, u64> {
    let known = HostFigure::ALL.into_iter().filter(|figure| figure.wire_version() <= version);
    known.map(|figure| (figure, 1_000 + figure as u64)).collect()
}

/// Version 12 adds the age of the process.
#[test]
fn version_12_is_pinned() {
    let sample = HostSample { at: MonoNanos(4_999_000), cores: "0-3,8".into(), figures: host_figures(12) };
    let batch = Batch { notes: vec![Note::Host(sample)], ..golden_batch() };
    assert_pinned(batch, 12, include_str!("golden_v12.hex"));
}

/// Version 14 adds the traffic of RDMA.
#[test]
fn version_14_is_pinned() {
    let sample = HostSample { at: MonoNanos(4_999_000), cores: "0-3,8".into(), figures: host_figures(14) };
    let batch = Batch { notes: vec![Note::Host(sample)], ..golden_batch() };
    assert_pinned(batch, 14, include_str!("golden_v14.hex"));
}

/// Version 20 adds how long the main thread waited for a core.
#[test]
fn version_20_is_pinned() {
    let sample = HostSample { at: MonoNanos(4_999_000), cores: "0-3,8".into(), figures: host_figures(20) };
    let batch = Batch { notes: vec![Note::Host(sample)], ..golden_batch() };
    assert_pinned(batch, 20, include_str!("golden_v20.hex"));
}

#[test]
fn the_documentation_lists_every_version() {
    let page = include_str!("../../../docs/wire.md");
    let missing: Vec<u16> =
        (1..=crate::batch::WIRE_VERSION).filter(|of| !page.contains(&format!("\n| {of} | "))).collect();
    assert!(missing.is_empty(), "docs/wire.md has no line for versions {missing:?}");
}

/// Version 22 adds the part of the memory that is shared with files.
#[test]
fn version_22_is_pinned() {
    let sample = HostSample { at: MonoNanos(4_999_000), cores: "0-3,8".into(), figures: host_figures(22) };
    let batch = Batch { notes: vec![Note::Host(sample)], ..golden_batch() };
    assert_pinned(batch, 22, include_str!("golden_v22.hex"));
}

/// Version 10 adds figures of hosts.
#[test]
fn version_10_is_pinned() {
    let figures = host_figures(10);
    let sample = HostSample { at: MonoNanos(4_999_000), cores: "0-3,8".into(), figures };
    let batch = Batch { notes: vec![Note::Host(sample)], ..golden_batch() };
    assert_pinned(batch, 10, include_str!("golden_v10.hex"));
}

/// Version 6 adds attributes.
#[test]
fn version_6_is_pinned() {
    let batch = Batch { notes: vec![attributes().into()], ..golden_batch() };
    assert_pinned(batch, 6, include_str!("golden_v6.hex"));
}

/// Version 9 adds more to layouts, and the figures of PyTorch's allocator.
#[test]
fn version_9_is_pinned() {
    let layouts = [layout(), layout().digest_alone()].map(Note::Layout);
    let notes = layouts.into_iter().chain([Note::Device(device(9))]).collect();
    let batch = Batch { notes, ..golden_batch() };
    assert_pinned(batch, 9, include_str!("golden_v9.hex"));
}

fn layout() -> Layout {
    let bucket = |bucket: u32, parameters: &[(&str, u64)]| LayoutBucket {
        bucket: Bucket(bucket),
        bytes: 4 * parameters.iter().map(|(_, elements)| elements).sum::<u64>(),
        parameters: parameters.iter().map(|(name, _)| (*name).to_owned()).collect(),
        elements: parameters.iter().map(|&(_, elements)| elements).collect(),
        dtype: "float32".into(),
    };
    let buckets = vec![bucket(0, &[("fc.weight", 640), ("fc.bias", 10)]), bucket(1, &[("conv.weight", 27)])];
    let (module, class) = (1, "Net".to_owned());
    let layout =
        Layout { buckets, module, class, since: Some(1), unused: Some(vec![0, 2]), ..Layout::default() };
    layout.bounded().unwrap()
}

#[test]
fn an_unused_parameter_that_does_not_exist_is_refused() {
    for unused in [vec![3], vec![1, 1], vec![2, 0]] {
        let layout = Layout { unused: Some(unused.clone()), ..layout() };
        let refused = decode_plain(&encode_plain(&Batch { notes: vec![Note::Layout(layout)], ..head() }));
        let is_refused = matches!(refused, Err(DecodeError::Value { what: "unused parameter", .. }));
        assert!(is_refused, "{unused:?}: {refused:?}");
    }
}

/// Version 8 adds kinds of spans.
#[test]
fn version_8_is_pinned() {
    let (step, begin, end) = (Step(9), MonoNanos(1_000), MonoNanos(3_000));
    let pause = |kind| Event::Span(Span { step, kind, begin, end, cpu_nanos: 0 });
    let batch = Batch { events: SpanKind::PAUSES.map(pause).into(), ..head() };
    assert_pinned(batch, 8, include_str!("golden_v8.hex"));
}

/// Version 17 adds the idle time of a device.
#[test]
fn version_17_is_pinned() {
    let (step, begin, end) = (Step(9), MonoNanos(1_000), MonoNanos(3_000));
    let span = Span { step, kind: SpanKind::Idle, begin, end, cpu_nanos: 0 };
    let batch = Batch { events: vec![Event::Span(span)], ..head() };
    assert_pinned(batch, 17, include_str!("golden_v17.hex"));
}

/// Version 18 adds the summary of a trace.
#[test]
fn version_18_is_pinned() {
    let sum =
        |kind, name: &str, gap_nanos| TraceSum { kind, name: name.into(), nanos: 7_000, calls: 3, gap_nanos };
    let rows = vec![sum(TraceRowKind::Kernel, "gemm", 900), sum(TraceRowKind::Operator, "aten::mm", 0)];
    let summary = TraceSummary { steps: 2, step_nanos: 80_000, rows };
    let batch = Batch { notes: vec![Note::Traced(summary)], ..head() };
    assert_pinned(batch, 18, include_str!("golden_v18.hex"));
}

/// Version 19 adds the stacks of long steps, and lines of code.
#[test]
fn version_19_is_pinned() {
    let StacksOutcome::Sampled(profile) = stacks().outcome else { unreachable!("they are sampled") };
    let frame = Frame { function: "save".into(), file: "train.py".into(), line: 21 };
    let long = LongStep {
        begun: MonoNanos(1_000),
        usual_nanos: 30_000_000,
        from: MonoNanos(90_000_000),
        until: MonoNanos(900_000_000),
        profile,
    };
    let line = SpanLine { kind: SpanKind::Checkpoint, frame };
    let batch = Batch { notes: vec![Note::LongStep(long), Note::Line(line)], ..head() };
    assert_pinned(batch, 19, include_str!("golden_v19.hex"));
}

/// Version 16 adds spans in which nothing shows whether the rank computes.
#[test]
fn version_16_is_pinned() {
    let (step, begin, end) = (Step(9), MonoNanos(1_000), MonoNanos(3_000));
    let span = Span { step, kind: SpanKind::Unclear, begin, end, cpu_nanos: 0 };
    let batch = Batch { events: vec![Event::Span(span)], ..head() };
    assert_pinned(batch, 16, include_str!("golden_v16.hex"));
}

/// Version 7 adds stacks.
#[test]
fn version_7_is_pinned() {
    let refused = Stacks { outcome: StacksOutcome::Refused { reason: "no".into() }, ..stacks() };
    let batch = Batch { notes: vec![Note::Stacks(stacks()), Note::Stacks(refused)], ..golden_batch() };
    assert_pinned(batch, 7, include_str!("golden_v7.hex"));
}

fn stacks() -> Stacks {
    let frame = |function: &str, line| Frame { function: function.into(), file: "train.py".into(), line };
    let main = ThreadStacks {
        role: ThreadRole::Main,
        name: String::new(),
        processes: 1,
        samples: 75,
        stacks: vec![Stack { count: 70, frames: vec![0, 1] }, Stack { count: 4, frames: vec![0] }],
    };
    let worker =
        ThreadStacks { role: ThreadRole::Worker, name: "w".into(), stacks: Vec::new(), ..main.clone() };
    let profile = Profile {
        frames: vec![frame("<module>", 90), frame("decode", 11)],
        threads: vec![main, worker],
        torn: 1,
    };
    let outcome = StacksOutcome::Sampled(profile);
    Stacks { request: 9, from: MonoNanos(4_000_000), until: MonoNanos(4_999_000), outcome }
}

#[test]
fn a_stack_with_an_unknown_frame_is_refused() {
    let mut stacks = stacks();
    if let StacksOutcome::Sampled(profile) = &mut stacks.outcome {
        profile.threads[0].stacks[0].frames[1] = 2;
    }
    let refused = decode_plain(&encode_plain(&Batch { notes: vec![Note::Stacks(stacks)], ..head() }));
    assert!(matches!(refused, Err(DecodeError::Value { what: "frame", found: 2, .. })), "{refused:?}");
}

/// Version 11 adds the workload.
#[test]
fn version_11_is_pinned() {
    let workload = Workload {
        samples_per_step: 8,
        sample_unit: "tokens".into(),
        flops_per_sample: 6_000_000_000,
        hardware_flops_per_sample: 8_000_000_000,
        precision: Some(Precision::Bf16),
        peak_flops_per_second: 989_000_000_000_000,
        is_peak_measured: true,
    };
    let batch = Batch {
        notes: vec![Note::Workload(workload), Note::Workload(Workload::default())],
        ..golden_batch()
    };
    assert_pinned(batch, 11, include_str!("golden_v11.hex"));
}

/// Version 13 adds the step that a job resumes.
#[test]
fn version_13_is_pinned() {
    let batch = Batch { notes: vec![Note::Resumed { step: Step(80_000) }], ..golden_batch() };
    assert_pinned(batch, 13, include_str!("golden_v13.hex"));
}

/// Version 21 adds the collective that a rank waits in before its steps are known.
#[test]
fn version_21_is_pinned() {
    let waiting = Waiting { seq: Function::Broadcast.numbered(3), launch: MonoNanos(-5) };
    let batch = Batch {
        notes: [Some(waiting), None].map(|waiting| Note::Waits { waiting }).to_vec(),
        ..golden_batch()
    };
    assert_pinned(batch, 21, include_str!("golden_v21.hex"));
}

fn attributes() -> Attributes {
    let texts = |pairs: [(&str, &str); 2]| pairs.map(|(name, value)| (name.into(), value.into())).into();
    Attributes {
        labels: texts([("team", "nlp"), ("image", "")]),
        software: texts([("nccl", "2.28.9"), ("kernel", "6.1.0")]),
    }
}

#[test]
fn a_label_that_occurs_twice_is_refused() {
    let labels = [("label1", "a"), ("label2", "b")].map(|(name, value)| (name.into(), value.into())).into();
    let attributes = Attributes { labels, ..Attributes::default() };
    let mut plain = encode_plain(&Batch { notes: vec![attributes.into()], ..head() });
    let at = plain.windows(6).position(|bytes| bytes == b"label2").unwrap();
    plain[at + 5] = b'1';
    let twice = DecodeError::Value { what: "list of texts with duplicates", at: at - 11, found: 2 };
    assert_eq!(decode_plain(&plain), Err(twice));
}

#[cfg(feature = "compress")]
#[test]
fn a_frame_round_trips_stored_and_compressed() {
    let small = golden_batch();
    let buckets = (0..1_000).map(|number| bucket(number, 1_000_000 * number as i64));
    let large = Batch { events: buckets.collect(), ..head() };
    for (batch, coding) in [(small, STORED), (large, ZSTD)] {
        let frame = encode(&batch).unwrap();
        assert_eq!(frame[6..8], coding.to_le_bytes());
        assert_eq!(decode(&frame).unwrap(), batch);
    }
}

#[cfg(feature = "compress")]
#[test]
fn hostile_frames_give_an_error_that_says_what_and_where() {
    let good = encode(&golden_batch()).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        decode(&frame).unwrap_err()
    };
    assert!(matches!(decode(b""), Err(DecodeError::Truncated { what: "magic", .. })));
    assert!(matches!(with(0, b"GET "), DecodeError::Magic { .. }));
    let newer = WIRE_VERSION + 1;
    assert_eq!(with(4, &newer.to_le_bytes()), DecodeError::Version { found: newer, newest: WIRE_VERSION });
    assert!(matches!(with(8, &[0xff; 4]), DecodeError::TooLarge { what: "plain length", .. }));
    assert!(matches!(with(8, &[1, 0, 0, 0]), DecodeError::Truncated { what: "payload", .. }));
    assert!(matches!(with(6, &[9, 0]), DecodeError::Value { what: "coding", found: 9, .. }));
    assert!(matches!(with(6, &[0, 0]), DecodeError::Compression { .. }));
    for end in 0..good.len() {
        assert!(decode(&good[..end]).is_err(), "{end} bytes of {} were accepted", good.len());
    }
}

#[cfg(feature = "compress")]
#[test]
fn a_decompression_bomb_is_refused_at_its_stated_size() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).unwrap();
    assert!(bomb.len() < 16_384);
    let mut frame = b"PCLB\x01\0\0\0".to_vec();
    frame.extend_from_slice(&(MAX_PLAIN_BYTES as u32).to_le_bytes());
    frame.extend_from_slice(&bomb);
    assert!(matches!(decode(&frame), Err(DecodeError::Compression { .. })));
}

#[test]
fn a_rank_outside_its_run_is_refused() {
    for (rank, world_size) in [(4, 4), (0, 0), (0, MAX_RANKS + 1)] {
        let batch = Batch { rank: Rank(rank), world_size, ..head() };
        assert_eq!(decode_plain(&encode_plain(&batch)), Err(DecodeError::Rank { rank, world_size }));
    }
}

#[test]
fn a_column_of_equal_values_cannot_claim_more_rows_than_a_batch_allows() {
    let mut plain = encode_plain(&head());
    plain.truncate(plain.len() - 4);
    plain.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]);
    assert!(matches!(decode_plain(&plain), Err(DecodeError::TooLarge { what: "rows", .. })));
}

fn any_event() -> impl Strategy<Value = Event> {
    let time = || any::<i64>().prop_map(MonoNanos);
    let step = || any::<u64>().prop_map(Step);
    let kind = prop::sample::select(SpanKind::ALL.to_vec());
    prop_oneof![
        (step(), kind, time(), time(), any::<u64>()).prop_map(|(step, kind, begin, end, cpu_nanos)| {
            Event::Span(Span { step, kind, begin, end, cpu_nanos })
        }),
        (step(), time(), time(), any::<u64>(), any::<bool>()).prop_map(
            |(step, begin, end, samples, shadow)| Event::Step(StepRecord {
                step,
                begin,
                end,
                samples,
                shadow
            })
        ),
        (step(), any::<u32>(), any::<u64>(), any::<u32>(), any::<u64>(), time()).prop_map(
            |(step, comm, seq, bucket, bytes, launch)| Event::Started(Started {
                step,
                comm: Comm(comm),
                seq: Seq(seq),
                bucket: Bucket(bucket),
                bytes,
                launch
            })
        ),
        (step(), any::<u64>(), any::<u32>(), any::<u64>(), [time(), time(), time(), time()]).prop_map(
            |(step, seq, bucket, bytes, [ready, launch, start, end])| Event::Bucket(BucketRecord {
                step,
                comm: Comm(1),
                seq: Seq(seq),
                bucket: Bucket(bucket),
                bytes,
                ready,
                launch,
                start,
                end,
                source: Source::DeviceEvent,
            })
        ),
    ]
}

proptest! {
    #[test]
    fn any_records_round_trip(mut events in prop::collection::vec(any_event(), 0..60)) {
        let batch = Batch { events: events.clone(), ..head() };
        let back = decode_plain(&encode_plain(&batch)).unwrap();
        events.sort_by_key(Event::kind);
        prop_assert_eq!(back, Batch { events, ..head() });
    }

    #[test]
    fn any_layout_round_trips(
        buckets in prop::collection::vec(prop::collection::vec((".{0,9}", any::<u64>()), 0..5), 0..5),
        (module, since, is_counted) in (any::<u32>(), any::<Option<u64>>(), any::<bool>()),
    ) {
        let of_bucket = |(bucket, parameters): (u32, Vec<(String, u64)>)| {
            let (parameters, elements) = parameters.into_iter().unzip();
            let elements = if is_counted { elements } else { Vec::new() };
            let bucket = Bucket(bucket);
            LayoutBucket { bucket, parameters, elements, bytes: 1, dtype: "bfloat16".into() }
        };
        let buckets = (0..).zip(buckets).map(of_bucket).collect();
        let layout = Layout { buckets, module, since, ..Layout::default() };
        let unused = Some((0..layout.count() as u32).step_by(2).collect());
        for layout in [layout.clone(), Layout { unused, ..layout }] {
            let batch = Batch { notes: vec![Note::Layout(layout)], ..head() };
            prop_assert_eq!(decode_plain(&encode_plain(&batch)), Ok(batch));
        }
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_plain(&bytes);
    }

    #[test]
    fn no_changed_byte_causes_a_panic(at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut plain = encode_plain(&golden_batch());
        let at = at.index(plain.len());
        plain[at] = value;
        let _ = decode_plain(&plain);
    }
}

#[test]
fn a_device_sample_round_trips() {
    for version in [2, 3, 9] {
        let mut sample = device(version);
        sample.figures.iter_mut().for_each(|(figure, value)| *value = u64::MAX >> *figure as u8);
        let batch = Batch { notes: vec![Note::Device(sample)], ..head() };
        assert_eq!(
            (head().wire_version(), batch.wire_version()),
            (1, version),
            "older servers read the rest"
        );
        assert_eq!(decode_plain(&encode_plain(&batch)), Ok(batch));
    }
}
