//! Tests of the codec: round trips, golden bytes and hostile bytes.

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
        drops: EventKind::ALL
            .into_iter()
            .zip(DropReason::ALL)
            .map(|(kind, reason)| Drop { kind, reason, count: 3 })
            .collect(),
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
        source: [Source::HostClock, Source::DeviceEvent, Source::ActivityRecord, Source::Derived]
            [number as usize % 4],
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
            bucket(21, 7_100),
        ],
        ..head()
    }
}

/// The bytes of a released version never change, because agents outlive servers. Together, the files have every kind of record, note and
/// figure.
#[test]
fn version_1_is_pinned() {
    let batch_with = |notes| Batch { notes, ..golden_batch() };
    for (golden, batch) in [
        (include_str!("golden_v1/identity.hex"), golden_batch()),
        (include_str!("golden_v1/instrumentations.hex"), Batch { notes: instrumentations(), ..head() }),
        (include_str!("golden_v1/spans.hex"), Batch { events: spans(), ..head() }),
        (
            include_str!("golden_v1/layouts.hex"),
            batch_with([layout(), layout().digest_alone()].map(Note::Layout).into()),
        ),
        (include_str!("golden_v1/device.hex"), batch_with(vec![device()])),
        (include_str!("golden_v1/bursts.hex"), batch_with(bursts())),
        (include_str!("golden_v1/host.hex"), batch_with(vec![host()])),
        (include_str!("golden_v1/attributes.hex"), batch_with(vec![attributes().into()])),
        (
            include_str!("golden_v1/stacks.hex"),
            batch_with(vec![Note::Stacks(stacks()), Note::Stacks(no_stacks())]),
        ),
        (include_str!("golden_v1/long_steps.hex"), Batch { notes: long_steps(), ..head() }),
        (include_str!("golden_v1/workload.hex"), batch_with(workloads())),
        (include_str!("golden_v1/traced.hex"), Batch { notes: vec![traced()], ..head() }),
        (include_str!("golden_v1/waits.hex"), batch_with(waits())),
    ] {
        let hex: String = encode_plain(&batch).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden.trim());
        assert_eq!(decode_plain(&encode_plain(&batch)), Ok(batch));
    }
}

#[test]
fn the_documentation_lists_every_version() {
    let page = include_str!("../../../docs/wire.md");
    let missing: Vec<u16> =
        (1..=WIRE_VERSION).filter(|version| !page.contains(&format!("\n| {version} | "))).collect();
    assert!(missing.is_empty(), "docs/wire.md has no line for versions {missing:?}");
}

fn instrumentations() -> Vec<Note> {
    let hello = |instrumentation| match &head().notes[0] {
        Note::Hello(hello) => Note::Hello(Hello { instrumentation, ..hello.clone() }),
        _ => unreachable!("the first note says who sends"),
    };
    Instrumentation::ALL.map(hello).into()
}

fn spans() -> Vec<Event> {
    let (step, begin, end) = (Step(9), MonoNanos(1_000), MonoNanos(3_000));
    SpanKind::ALL.map(|kind| Event::Span(Span { step, kind, begin, end, cpu_nanos: 0 })).into()
}

fn device() -> Note {
    let figures = DeviceFigure::ALL.map(|figure| (figure, 1_000 + figure as u64)).into();
    Note::Device(DeviceSample { at: MonoNanos(4_999_000), device: "a GPU at 0000:01:00.0".into(), figures })
}

fn host() -> Note {
    let figures = HostFigure::ALL.map(|figure| (figure, 1_000 + figure as u64)).into();
    Note::Host(HostSample { at: MonoNanos(4_999_000), cores: "0-3,8".into(), figures })
}

fn bursts() -> Vec<Note> {
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
        covered_nanos: 1_000,
        copy_nanos: 7,
        idle_nanos: 8,
        gaps: 3,
        longest_gap_nanos: 7_000,
        kernels: vec![kernel(3), kernel(2)],
    };
    let refused = BurstOutcome::Refused { reason: "no".into() };
    let (from, until) = (MonoNanos(4_000_000), MonoNanos(4_999_000));
    let burst = |outcome| Note::Burst(Burst { request: 9, from, until, outcome });
    [BurstOutcome::Recorded(activity), refused].map(burst).into()
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

fn traced() -> Note {
    let sum =
        |kind, name: &str, gap_nanos| TraceSum { kind, name: name.into(), nanos: 7_000, calls: 3, gap_nanos };
    let rows = TraceRowKind::ALL.map(|kind| sum(kind, "gemm", 900)).into();
    Note::Traced(TraceSummary { steps: 2, step_nanos: 80_000, rows })
}

fn long_steps() -> Vec<Note> {
    let StacksOutcome::Sampled(profile) = stacks().outcome else { unreachable!("they are sampled") };
    let frame = Frame { function: "save".into(), file: "train.py".into(), line: 21 };
    let long = LongStep {
        begun: MonoNanos(1_000),
        usual_nanos: 30_000_000,
        from: MonoNanos(90_000_000),
        until: MonoNanos(900_000_000),
        profile,
    };
    vec![Note::LongStep(long), Note::Line(SpanLine { kind: SpanKind::Checkpoint, frame })]
}

fn no_stacks() -> Stacks {
    Stacks { outcome: StacksOutcome::Refused { reason: "no".into() }, ..stacks() }
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
    let others = ThreadRole::ALL.into_iter().skip(1);
    let others =
        others.map(|role| ThreadStacks { role, name: "w".into(), stacks: Vec::new(), ..main.clone() });
    let profile = Profile {
        frames: vec![frame("<module>", 90), frame("decode", 11)],
        threads: std::iter::once(main.clone()).chain(others).collect(),
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

fn workloads() -> Vec<Note> {
    let workload = |precision| {
        Note::Workload(Workload {
            samples_per_step: 8,
            sample_unit: "tokens".into(),
            flops_per_sample: 6_000_000_000,
            hardware_flops_per_sample: 8_000_000_000,
            precision: Some(precision),
            peak_flops_per_second: 989_000_000_000_000,
            is_peak_measured: true,
        })
    };
    let others = [Note::Workload(Workload::default()), Note::Resumed { step: Step(80_000) }];
    Precision::ALL.into_iter().map(workload).chain(others).collect()
}

fn waits() -> Vec<Note> {
    let waiting = Waiting { seq: Function::Broadcast.numbered(3), launch: MonoNanos(-5) };
    [Some(waiting), None].map(|waiting| Note::Waits { waiting }).into()
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
        assert_eq!(frame[..8], [b"PCLB".as_slice(), &[1, 0], &coding.to_le_bytes()].concat());
        assert_eq!(decode(&frame).unwrap(), batch);
    }
}

#[cfg(feature = "compress")]
#[test]
fn hostile_frames_give_an_error_that_says_what_and_where() {
    let good = encode(&golden_batch()).unwrap();
    let error_with = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        decode(&frame).unwrap_err()
    };
    assert!(matches!(decode(b""), Err(DecodeError::Truncated { what: "magic", .. })));
    assert!(matches!(error_with(0, b"GET "), DecodeError::Magic { .. }));
    for found in [0, 2] {
        let error = error_with(4, &u16::to_le_bytes(found));
        assert_eq!(error, DecodeError::Version { found });
        let said = "this server reads version 1; it must be at least as new as its agents, so upgrade it";
        assert_eq!(error.to_string(), format!("unsupported batch version {found}: {said}"));
    }
    assert!(matches!(error_with(8, &[0xff; 4]), DecodeError::TooLarge { what: "plain length", .. }));
    assert!(matches!(error_with(8, &[1, 0, 0, 0]), DecodeError::Truncated { what: "payload", .. }));
    assert!(matches!(error_with(6, &[9, 0]), DecodeError::Value { what: "coding", found: 9, .. }));
    assert!(matches!(error_with(6, &[0, 0]), DecodeError::Compression { .. }));
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
        let layout_bucket = |(bucket, parameters): (u32, Vec<(String, u64)>)| {
            let (parameters, elements) = parameters.into_iter().unzip();
            let elements = if is_counted { elements } else { Vec::new() };
            let bucket = Bucket(bucket);
            LayoutBucket { bucket, parameters, elements, bytes: 1, dtype: "bfloat16".into() }
        };
        let buckets = (0..).zip(buckets).map(layout_bucket).collect();
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
    let figures = DeviceFigure::ALL.map(|figure| (figure, u64::MAX >> figure as u8)).into();
    let sample = DeviceSample { at: MonoNanos(-7), device: String::new(), figures };
    let batch = Batch { notes: vec![Note::Device(sample)], ..head() };
    assert_eq!(decode_plain(&encode_plain(&batch)), Ok(batch));
}
