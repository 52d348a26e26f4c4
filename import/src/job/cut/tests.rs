//! Parts that a cut file lacks are left out on all ranks.

use wire::event::{BucketRecord, Function, Source, Span, SpanKind, StepRecord};
use wire::ids::{Bucket, Comm};

use super::super::clocks::proofs;
use super::*;

const STEP: Step = Step(4);

fn bucket(number: u64, end: i64) -> BucketRecord {
    BucketRecord {
        step: STEP,
        comm: Comm(0),
        seq: Function::AllReduce.numbered(number),
        bucket: Bucket(0),
        bytes: 0,
        ready: MonoNanos(end - 5),
        launch: MonoNanos(end - 5),
        start: MonoNanos(end - 5),
        end: MonoNanos(end),
        source: Source::ActivityRecord,
    }
}

/// Returns what is left of a step from 0 to 100 whose all-reduces end at these times, if some rank lacks those with these numbers.
fn left(ends: &[i64], lacking: &[u64]) -> Vec<(i64, i64)> {
    let buckets: Vec<Event> =
        ends.iter().zip(0..).map(|(&end, number)| Event::Bucket(bucket(number, end))).collect();
    let places =
        lacking.iter().map(|&number| ((Comm(0), Function::AllReduce.numbered(number)), None)).collect();
    let windows = windows(&proofs(&buckets), &places);
    let span = |begin, end| {
        let (begin, end) = (MonoNanos(begin), MonoNanos(end));
        Event::Span(Span { step: STEP, kind: SpanKind::Forward, begin, end, cpu_nanos: 0 })
    };
    let (begin, end) = (MonoNanos(0), MonoNanos(100));
    let step = Event::Step(StepRecord { step: STEP, begin, end, samples: 0, shadow: false });
    let mut events = [buckets, vec![span(0, 15), span(45, 100), step]].concat();
    events.retain_mut(|event| clip(event, &windows));
    let times = |event: &Event| match event {
        Event::Step(record) => (record.begin.0, record.end.0),
        Event::Span(span) => (span.begin.0, span.end.0),
        Event::Bucket(bucket) => (bucket.start.0, bucket.end.0),
        Event::Started(_) => (0, 0),
    };
    events.iter().map(times).collect()
}

#[test]
fn what_comes_after_the_last_common_collective_is_left_out() {
    assert_eq!(left(&[20, 40, 60, 80], &[2, 3]), [(15, 20), (35, 40), (0, 15), (0, 40)]);
    assert_eq!(left(&[20, 50, 60], &[2]), [(15, 20), (45, 50), (0, 15), (45, 50), (0, 50)]);
}

#[test]
fn what_comes_before_the_first_common_collective_is_left_out() {
    assert_eq!(left(&[20, 40, 60], &[0]), [(35, 40), (55, 60), (45, 100), (20, 100)]);
}

#[test]
fn a_step_that_lacks_collectives_in_its_middle_is_whole() {
    assert_eq!(left(&[20, 40, 60], &[1]).len(), 6);
    assert_eq!(left(&[20, 40, 60], &[])[5], (0, 100));
}
