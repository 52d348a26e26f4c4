//! Steps of jobs with several communicators.

use super::*;
use crate::call_log::Function;
use crate::infer::collective::Ran;
use crate::marks::Begin;

const DATA: u64 = 0x1_0000_0001;
const TENSOR: u64 = 77;

fn timed(communicator: u64, seq: u64, bytes: u64, micros: [i64; 3]) -> Timed {
    let [launch, start, end] = micros.map(|micros| MonoNanos(micros * 1_000));
    let ran = Ran::Host { begin: start, end };
    let function = Function::AllReduce;
    let collective =
        Collective { communicator, function, seq, bytes, launch, ran, is_sent: false, begins: None };
    Timed { collective, start, end, source: Source::DeviceEvent }
}

/// Returns the spans of the steps that have ended, in microseconds since `at`.
fn settled(placer: &mut Placer, at: i64) -> Vec<(SpanKind, i64, i64)> {
    let mut spans = Vec::new();
    placer.settle(|event| {
        if let Event::Span(span) = event {
            let micros = |time: MonoNanos| (time.0 - at * 1_000) / 1_000;
            spans.push((span.kind, micros(span.begin), micros(span.end)));
        }
    });
    spans
}

/// Runs steps of 100 ms, with two layers of tensor parallelism and then two buckets. The second bucket waits for
/// its turn.
fn job(steps: u64) -> Vec<Event> {
    let (mut placer, mut events) = (Placer::default(), Vec::new());
    placer.name_world(DATA);
    for step in 0..steps {
        let at = step as i64 * 100_000;
        for collective in [
            timed(TENSOR, 2 * step, 8, [at + 10_000, at + 20_000, at + 21_000]),
            timed(TENSOR, 2 * step + 1, 8, [at + 12_000, at + 30_000, at + 31_000]),
            timed(DATA, 2 * step, 100, [at + 14_000, at + 60_000, at + 80_000]),
            timed(DATA, 2 * step + 1, 50, [at + 15_000, at + 80_001, at + 90_000]),
        ] {
            placer.ingest(&collective, |event| events.push(event));
        }
        placer.settle(|event| events.push(event));
    }
    events
}

#[test]
fn a_step_contains_the_buckets_of_all_communicators_and_ends_with_the_last() {
    let events = job(80);
    let ends: Vec<(Step, i64, i64)> = events
        .iter()
        .filter_map(|event| match event {
            Event::Step(step) => Some((step.step, step.end - step.begin, step.end.0)),
            _ => None,
        })
        .collect();
    assert!(ends.len() > 30, "{ends:?}");
    for &(step, length, end) in &ends {
        assert_eq!((length, end), (100_000_000, step.0 as i64 * 100_000_000 + 90_000_000));
        let step_events = events.iter().filter(|event| event.step() == step);
        let mut comms: Vec<(Comm, u32)> = step_events
            .filter_map(|event| match event {
                Event::Bucket(bucket) => Some((bucket.comm, bucket.bucket.0)),
                _ => None,
            })
            .collect();
        comms.sort_unstable();
        assert_eq!(comms, [(Comm(0), 0), (Comm(0), 1), (Comm(TENSOR as u32), 0), (Comm(TENSOR as u32), 1)]);
    }
}

#[test]
fn compute_lasts_until_a_collective_that_found_its_stream_idle() {
    let mut spans = job(80).into_iter().filter_map(|event| match event {
        Event::Span(span) => Some((span.kind, span.begin.0 % 100_000_000, span.end.0 % 100_000_000)),
        _ => None,
    });
    // The second bucket waited for the first, which says nothing about compute. A layer waits for its sum.
    while let Some(compute) = spans.next() {
        assert_eq!(compute, (SpanKind::Backward, 90_000_000, 60_000_000));
        assert_eq!(spans.next(), Some((SpanKind::Blocked, 20_000_000, 21_000_000)));
        assert_eq!(spans.next(), Some((SpanKind::Blocked, 30_000_000, 31_000_000)));
        assert_eq!(spans.next(), Some((SpanKind::Blocked, 60_000_000, 90_000_000)));
        // In each step, all takes as long as in the others, which shows nothing.
        for (from, to) in [(20, 21), (30, 31), (60, 80)] {
            assert_eq!(spans.next(), Some((SpanKind::Unclear, from * 1_000_000, to * 1_000_000)));
        }
        assert_eq!(spans.next(), Some((SpanKind::Unclear, 80_001_000, 90_000_000)));
    }
}

/// Runs steps with a bucket that takes 1 to 3 ms longer in some than in others while the rank computes, and two that
/// follow it at 40 ms, one right after the other.
#[test]
fn gradients_that_wait_for_their_turn_may_have_come_at_any_time() {
    let (mut placer, mut spans) = (Placer::default(), Vec::new());
    for step in 0..120 {
        let (at, seq) = (step * 100_000, 3 * step as u64);
        let took = 5_000 + step * 7_919 % 11 * 200;
        for collective in [
            timed(DATA, seq, 10, [at, at + 20_000, at + 20_000 + took]),
            timed(DATA, seq + 1, 200, [at, at + 40_000, at + 60_000]),
            timed(DATA, seq + 2, 300, [at, at + 60_000, at + 90_000]),
        ] {
            placer.ingest(&collective, |_| {});
        }
        spans.extend(settled(&mut placer, at));
    }
    let expected = [
        (SpanKind::Backward, -10_000, 40_000),
        (SpanKind::Blocked, 40_000, 90_000),
        (SpanKind::Unclear, 40_000, 60_000),
    ];
    assert_eq!(&spans[spans.len() - expected.len()..], expected);
}

fn phase(phase: Phase, enqueued: Option<MonoNanos>, begin: MonoNanos, end: MonoNanos) -> Timing {
    Timing { phase, enqueued, begin, end, used: 0 }
}

/// Runs steps of 100 ms with one collective. The host reads its input from 2 to 12 ms, or `ahead` microseconds
/// earlier, while the device is still busy.
fn spans_of_input(ahead: i64) -> Vec<(SpanKind, i64, i64)> {
    let (mut placer, mut spans) = (Placer::default(), Vec::new());
    for step in 0..80 {
        let at = step * 100_000;
        let micros = |micros: i64| MonoNanos((at + micros) * 1_000);
        placer.ingest_phase(phase(Phase::Input, None, micros(2_000 - ahead), micros(12_000 - ahead)));
        let collective = timed(DATA, step as u64, 100, [at + 14_000, at + 60_000, at + 100_000]);
        placer.ingest(&collective, |_| {});
        spans.extend(settled(&mut placer, at));
    }
    spans
}

#[test]
fn a_device_waits_only_for_input_read_after_it_finished_the_previous_step() {
    let waited = spans_of_input(0);
    let expected = [
        (SpanKind::Backward, 0, 2_000),
        (SpanKind::Input, 2_000, 12_000),
        (SpanKind::Backward, 12_000, 60_000),
        (SpanKind::Blocked, 60_000, 100_000),
        (SpanKind::Unclear, 60_000, 100_000),
    ];
    assert_eq!(&waited[waited.len() - 5..], expected);
    let ahead = spans_of_input(20_000);
    assert_eq!(&ahead[ahead.len() - 3..], [(SpanKind::Backward, 0, 60_000), expected[3], expected[4]]);
    assert!(ahead.iter().all(|(kind, ..)| *kind != SpanKind::Input), "{ahead:?}");
}

/// Runs steps of 100 ms with one collective from 60 to 90 ms. The host computes from 10 to 60 ms. It waits for the
/// collective, whose end is seen late: by then, the update has run for 2 ms.
fn spans_of_host(reads: impl Fn(usize) -> bool) -> Vec<(SpanKind, i64, i64)> {
    let (mut placer, mut spans) = (Placer::default(), Vec::new());
    for step in 0..80_usize {
        let at = step as i64 * 100_000;
        let micros = |micros: i64| MonoNanos((at + micros) * 1_000);
        if reads(step) {
            placer.ingest_phase(phase(Phase::Input, None, micros(2_000), micros(10_000)));
        }
        placer.ingest_phase(phase(Phase::Forward, None, micros(10_000), micros(30_000)));
        placer.ingest_phase(phase(Phase::Backward, None, micros(30_000), micros(60_000)));
        placer.ingest(&timed(DATA, step as u64, 100, [at + 60_000, at + 60_000, at + 90_000]), |_| {});
        placer.ingest_phase(phase(Phase::Optimizer, None, micros(88_000), micros(95_000)));
        spans.extend(settled(&mut placer, at));
    }
    spans
}

#[test]
fn ranks_of_different_groups_begin_their_steps_with_the_same_kind_of_group() {
    // By group: number and bytes. Gradients have more bytes than layers.
    for groups in [[(7, 100), (9, 8)], [(7, 8), (5, 100)], [(9, 100), (7, 8)]] {
        let mut placer = Placer::default();
        for step in 0..80 {
            let at = step * 100_000;
            for (number, bytes) in groups {
                let started = at + 10 * number as i64;
                placer.ingest(&timed(number, step as u64, bytes, [started, started, started + 5]), |_| {});
            }
        }
        let (gradients, _) = groups.into_iter().find(|(_, bytes)| *bytes == 100).expect("one has gradients");
        assert_eq!(placer.anchor, Some(gradients), "{groups:?}");
    }
}

#[test]
fn phases_that_the_host_computes_replace_inferred_ones() {
    let spans = spans_of_host(|_| true);
    let expected = [
        // The update of the step before ends in this one.
        (SpanKind::Optimizer, -10_000, -5_000),
        (SpanKind::Input, 2_000, 10_000),
        (SpanKind::Forward, 10_000, 30_000),
        (SpanKind::Backward, 30_000, 60_000),
        (SpanKind::Optimizer, 88_000, 90_000),
        (SpanKind::Blocked, 60_000, 88_000),
    ];
    assert_eq!(&spans[spans.len() - expected.len()..], expected);
}

#[test]
fn processor_time_belongs_to_the_part_of_a_phase_that_lies_in_the_step() {
    let (mut placer, mut spans) = (Placer::default(), Vec::new());
    for step in 0..80 {
        let at = step * 100_000;
        let micros = |micros: i64| MonoNanos((at + micros) * 1_000);
        let half = |phase: Phase, begin, end| Timing {
            used: (end - begin) as u64 * 500,
            ..self::phase(phase, None, micros(begin), micros(end))
        };
        placer.ingest_phase(half(Phase::Forward, 10_000, 30_000));
        placer.ingest_phase(half(Phase::Backward, 30_000, 60_000));
        placer.ingest(&timed(DATA, step as u64, 100, [at + 60_000, at + 60_000, at + 90_000]), |_| {});
        // The step ends at 90 ms.
        placer.ingest_phase(half(Phase::Optimizer, 88_000, 96_000));
        placer.settle(|event| spans.extend(Some(event)));
    }
    let used = |wanted: SpanKind| {
        let mut nanos = spans.iter().filter_map(|event| match event {
            Event::Span(span) if span.kind == wanted => Some(span.cpu_nanos),
            _ => None,
        });
        nanos.next_back()
    };
    let used = [SpanKind::Forward, SpanKind::Backward, SpanKind::Optimizer, SpanKind::Blocked].map(used);
    assert_eq!(used, [10_000_000, 15_000_000, 1_000_000, 0].map(Some));
}

#[test]
fn the_host_waits_for_a_collective_between_its_phases() {
    let (mut placer, mut spans) = (Placer::default(), Vec::new());
    for step in 0..80 {
        let at = step * 100_000;
        let micros = |micros: i64| MonoNanos((at + micros) * 1_000);
        placer.ingest_phase(phase(Phase::Input, None, micros(2_000), micros(10_000)));
        // A gather from 12 to 22 ms, before the forward pass.
        let gather = timed(DATA, 2 * step as u64, 8, [at + 12_000, at + 12_000, at + 22_000]);
        placer.ingest(&gather, |_| {});
        placer.ingest_phase(phase(Phase::Forward, None, micros(25_000), micros(30_000)));
        placer.ingest_phase(phase(Phase::Backward, None, micros(30_000), micros(60_000)));
        let bucket = timed(DATA, 2 * step as u64 + 1, 100, [at + 50_000, at + 50_000, at + 90_000]);
        placer.ingest(&bucket, |_| {});
        spans.extend(settled(&mut placer, at));
    }
    let expected = [
        (SpanKind::Input, 2_000, 10_000),
        (SpanKind::Blocked, 12_000, 22_000),
        (SpanKind::Forward, 25_000, 30_000),
        (SpanKind::Backward, 30_000, 60_000),
        (SpanKind::Blocked, 60_000, 90_000),
    ];
    assert_eq!(&spans[spans.len() - expected.len()..], expected);
}

#[test]
fn gradients_are_ready_when_the_device_has_them_however_early_the_host_enqueued_the_collective() {
    let (mut placer, mut ready) = (Placer::default(), Vec::new());
    for step in 0..80 {
        let at = step as i64 * 100_000;
        // The host is a second ahead. The first collective finds its stream idle, and the second one waits for it.
        for (seq, bytes, [launch, start, end]) in [
            (2 * step, 100, [at - 1_000_000, at + 40_000, at + 60_000]),
            (2 * step + 1, 50, [at - 999_000, at + 60_005, at + 90_000]),
        ] {
            placer.ingest(&timed(DATA, seq, bytes, [launch, start, end]), |event| {
                if let Event::Bucket(bucket) = event {
                    ready.push([bucket.ready, bucket.launch].map(|time| time.0 / 1_000 - at));
                }
            });
        }
    }
    assert_eq!(ready[ready.len() - 2..], [[40_000; 2]; 2]);
}

#[test]
fn a_phase_of_the_host_counts_only_while_the_device_waits_for_it() {
    let (mut placer, mut spans) = (Placer::default(), Vec::new());
    for step in 0..80 {
        let at = step * 100_000;
        let micros = |micros: i64| MonoNanos((at + micros) * 1_000);
        let mut on_device = |phase, enqueued, begin, end| {
            placer.ingest_phase(self::phase(phase, Some(micros(enqueued)), micros(begin), micros(end)));
        };
        // The previous step's update follows its last collective. Then the device waits for the host.
        on_device(Phase::Optimizer, -40_000, -10_000, -5_000);
        on_device(Phase::Forward, 8_000, 10_000, 30_000);
        on_device(Phase::Backward, 9_000, 30_000, 60_000);
        placer.ingest_phase(phase(Phase::Input, None, micros(2_000), micros(9_000)));
        // While the device computes, the host collects garbage and fetches another batch.
        placer.ingest_phase(phase(Phase::GarbageCollection, None, micros(15_000), micros(20_000)));
        placer.ingest_phase(phase(Phase::Input, None, micros(55_000), micros(75_000)));
        let bucket = timed(DATA, step as u64, 100, [at + 9_500, at + 50_000, at + 90_000]);
        placer.ingest(&bucket, |_| {});
        spans.extend(settled(&mut placer, at));
    }
    let expected = [
        (SpanKind::Optimizer, -10_000, -5_000),
        (SpanKind::Input, 2_000, 8_000),
        (SpanKind::Forward, 10_000, 30_000),
        (SpanKind::Backward, 30_000, 60_000),
        (SpanKind::Blocked, 60_000, 90_000),
    ];
    assert_eq!(&spans[spans.len() - expected.len()..], expected);
}

#[test]
fn a_phase_that_is_missing_in_a_step_is_in_the_others() {
    let spans = spans_of_host(|step| step.is_multiple_of(2));
    let count = |kind| spans.iter().filter(|(other, ..)| *other == kind).count();
    let steps = count(SpanKind::Forward);
    assert!(steps > 30, "{spans:?}");
    assert_eq!((count(SpanKind::Backward), count(SpanKind::Blocked)), (steps, steps));
    assert_eq!(count(SpanKind::Input), steps / 2);
    // One part before the end of the step, one after it.
    assert!((2 * steps - 1..=2 * steps).contains(&count(SpanKind::Optimizer)), "{spans:?}");
}

#[test]
fn a_sequence_number_never_names_two_collectives() {
    let mut seen = std::collections::BTreeSet::new();
    for event in job(80) {
        if let Event::Bucket(bucket) = event {
            assert!(seen.insert((bucket.comm, bucket.seq)), "{bucket:?}");
        }
    }
    assert!(!seen.is_empty());
}

/// Runs steps of a job in which one optimizer updates, with one bucket from 60 to 90 ms and an update from 92 ms on. Returns the
/// number, the begin and the length of each step that was recorded, in milliseconds.
fn recorded_steps(steps: u32) -> Vec<(u64, i64, i64)> {
    let (mut placer, mut events) = (Placer::default(), Vec::new());
    placer.name_world(DATA);
    for step in 0..steps {
        let at = i64::from(step) * 100_000;
        let micros = |micros: i64| MonoNanos((at + micros) * 1_000);
        placer.ingest_phase(phase(Phase::Forward, None, micros(0), micros(30_000)));
        placer.ingest_phase(phase(Phase::Backward, None, micros(30_000), micros(60_000)));
        let mut bucket = timed(DATA, step.into(), 100, [at + 60_000, at + 60_000, at + 90_000]);
        bucket.collective.begins = Begin::new(step, true);
        placer.ingest(&bucket, |event| events.push(event));
        placer.ingest_phase(phase(Phase::Optimizer, None, micros(92_000), micros(98_000)));
        placer.settle(|event| events.push(event));
    }
    let forwards =
        events.iter().filter(|event| matches!(event, Event::Span(span) if span.kind == SpanKind::Forward));
    let millis = |nanos: i64| nanos / 1_000_000;
    let steps = events.iter().filter_map(|event| match event {
        Event::Step(step) => Some((step.step.0, millis(step.begin.0), millis(step.end - step.begin))),
        _ => None,
    });
    let steps: Vec<(u64, i64, i64)> = steps.collect();
    assert_eq!(forwards.count(), steps.len(), "each step has its phases");
    steps
}

#[test]
fn what_was_read_before_the_steps_were_known_is_recorded_with_its_phases() {
    let expected =
        |steps: i64| (2..steps).map(|step| (step as u64, 100 * step - 10, 100)).collect::<Vec<_>>();
    assert_eq!(recorded_steps(3), []);
    assert_eq!(recorded_steps(4), expected(4), "two steps are alike, and the next begins");
    assert_eq!(recorded_steps(40), expected(40));
}

#[test]
fn early_steps_whose_phases_were_forgotten_are_left_out() {
    let (mut placer, mut steps) = (Placer::default(), Vec::new());
    placer.name_world(DATA);
    // Two optimizers update, so that steps are known after a second. Each step collects garbage often.
    for step in 0..1_200_u32 {
        let at = i64::from(step) * 1_000;
        for part in 0..9 {
            let micros = |micros: i64| MonoNanos((at + 100 * part + micros) * 1_000);
            let phase = if part == 5 { Phase::Backward } else { Phase::GarbageCollection };
            placer.ingest_phase(self::phase(phase, None, micros(0), micros(50)));
        }
        let mut bucket = timed(DATA, step.into(), 100, [at + 600, at + 600, at + 900]);
        bucket.collective.begins = Begin::new(step, false);
        placer.ingest(&bucket, |_| {});
        placer.settle(|event| {
            if let Event::Span(span) = event {
                steps.push((span.step.0, span.kind));
            }
        });
    }
    let first = steps.first().expect("steps are found").0;
    assert!((80..400).contains(&first), "{first}");
    let backwards = steps.iter().filter(|(_, kind)| *kind == SpanKind::Backward).count() as u64;
    assert_eq!(backwards, 1_200 - first, "no compute is inferred");
}
