//! Records of drawn traces, against the figures of their windows.

use std::collections::BTreeSet;

use proptest::prelude::*;
use timing::parts::is_part;

use super::*;
use crate::group::Group;
use crate::kineto::figures::work_figures;
use crate::kineto::{Carried, Launch, Marked, device_steps};

/// The length of a step on the host, in nanoseconds.
const STEP: i64 = 1_000_000;

/// Some work, the time of its launch if there is one, and its phase.
type Drawn = (Kind, (i64, i64), i64, Option<i64>, Option<SpanKind>);

fn work() -> impl Strategy<Value = Drawn> {
    let kinds = prop_oneof![
        3 => Just(Kind::Compute),
        3 => Just(Kind::Collective(Function::AllReduce)),
        1 => Just(Kind::Collective(Function::AllGather)),
        1 => Just(Kind::CopyToDevice),
        1 => Just(Kind::Memory),
        1 => Just(Kind::Wait),
    ];
    let phases = prop_oneof![Just(None), Just(Some(SpanKind::Backward)), Just(Some(SpanKind::Optimizer))];
    let ran = (0_i64..5 * STEP, prop_oneof![0_i64..200_000, 0_i64..2 * STEP]);
    // Up to two steps pass from the launch of some work to its begin, and some launches are missing.
    let lead = prop::option::weighted(0.9, 0_i64..2 * STEP);
    (kinds, ran, 7_i64..10, lead, phases).prop_map(|(kind, (begin, length), stream, lead, phase)| {
        (kind, (begin, begin + length), stream, lead.map(|lead| begin - lead), phase)
    })
}

/// A trace with five marked steps.
fn trace(drawn: &[Drawn]) -> Trace {
    let mut trace = Trace {
        steps: (0..5)
            .map(|at| Marked { number: 4 + at, begin: at as i64 * STEP, end: (at as i64 + 1) * STEP })
            .collect(),
        carried: vec![Carried::default()],
        base_nanos: 1_000,
        ..Trace::default()
    };
    for (&(kind, (begin, end), stream, launched, phase), correlation) in drawn.iter().zip(1..) {
        let carried = kind.is_collective().then_some(0);
        trace.work.push(Work { kind, begin, end, stream, correlation, name: 0, carried });
        trace.launches.extend(launched.map(|at| Launch { at, correlation, phase }));
    }
    trace.work.sort_by_key(|work| (work.begin, work.end));
    trace
}

/// The records of a step, on the trace's clock.
struct Found {
    window: Interval,
    spans: Vec<(SpanKind, Interval)>,
    /// The collectives and, apart, the parts of those of other steps.
    collectives: [Vec<Interval>; 2],
}

impl Found {
    fn union(&self, kinds: &[SpanKind]) -> Intervals {
        Intervals::union(self.spans.iter().filter(|(kind, _)| kinds.contains(kind)).map(|&(_, ran)| ran))
    }

    fn communication(&self) -> Intervals {
        Intervals::union(self.collectives.concat()).clip(self.window)
    }
}

fn found(trace: &Trace) -> Vec<Found> {
    let records = records(trace, &device_steps(trace), 1, 2);
    let own = |begin: MonoNanos, end: MonoNanos| (begin.0 - trace.base_nanos, end.0 - trace.base_nanos);
    let figures = |number: &u64| {
        let mut found = Found { window: (0, 0), spans: Vec::new(), collectives: [Vec::new(), Vec::new()] };
        for event in &records.events {
            match event {
                Event::Step(step) if step.step.0 == *number => found.window = own(step.begin, step.end),
                Event::Span(span) if span.step.0 == *number => {
                    found.spans.push((span.kind, own(span.begin, span.end)));
                }
                Event::Bucket(bucket) if bucket.step.0 == *number => {
                    let place = usize::from(is_part(1, bucket));
                    found.collectives[place].push(own(bucket.start, bucket.end));
                }
                _ => {}
            }
        }
        found
    };
    records.steps.iter().map(figures).collect()
}

proptest! {
    /// What the figures of a window say is what the records of its step say, whichever step launched the work. The figures
    /// are computed apart from the records, over all work of the trace.
    #[test]
    fn a_step_has_the_parts_of_all_work_that_runs_in_it(drawn in prop::collection::vec(work(), 1..60)) {
        let trace = trace(&drawn);
        let found = found(&trace);
        let compute = |step: &Found| step.union(&PHASES);
        for step in &found {
            let figures = work_figures(trace.work.iter(), Some(step.window));
            prop_assert_eq!(compute(step).total(), figures.compute_nanos);
            prop_assert_eq!(step.communication().total(), figures.communication_nanos);
            prop_assert_eq!(compute(step).intersect(&step.communication()).total(), figures.hidden_nanos);
            prop_assert_eq!(step.union(&[SpanKind::Idle]).total(), figures.idle_nanos);
            prop_assert_eq!(step.union(&[SpanKind::Blocked]).intersect(&compute(step)).total(), 0);
            prop_assert!(step.collectives[1].iter().all(|part| step.window.0 <= part.0 && part.1 <= step.window.1));
        }
        // No time counts in two steps, and none is lost.
        let windows = Intervals::union(found.iter().map(|step| step.window));
        let in_windows = |wanted: fn(Kind) -> bool| {
            let ran = trace.work.iter().filter(|work| wanted(work.kind)).map(|work| (work.begin, work.end));
            Intervals::union(ran).intersect(&windows).total()
        };
        let sum = |amount: &dyn Fn(&Found) -> u64| found.iter().map(amount).sum::<u64>();
        prop_assert_eq!(sum(&|step| step.communication().total()), in_windows(Kind::is_collective));
        prop_assert_eq!(sum(&|step| compute(step).total()), in_windows(|kind| kind == Kind::Compute));
        let busy = in_windows(|kind| kind != Kind::Wait);
        prop_assert_eq!(sum(&|step| step.union(&[SpanKind::Idle]).total()), windows.total() - busy);
    }

    /// A collective is recorded once as itself, in the step that launched it.
    #[test]
    fn a_collective_belongs_to_the_step_that_launched_it(drawn in prop::collection::vec(work(), 1..60)) {
        let trace = trace(&drawn);
        let records = records(&trace, &device_steps(&trace), 1, 2);
        let buckets = records.events.iter().filter_map(|event| match event {
            Event::Bucket(bucket) => Some(bucket),
            _ => None,
        });
        let (parts, own): (Vec<&BucketRecord>, Vec<&BucketRecord>) = buckets.partition(|bucket| is_part(1, bucket));
        prop_assert_eq!(own.len() as u64, records.collectives);
        let named: BTreeSet<_> = own.iter().chain(&parts).map(|bucket| (bucket.step, bucket.comm, bucket.seq)).collect();
        prop_assert_eq!(named.len(), own.len() + parts.len());
    }
}

/// Two steps with a collective each. Step 5 launches its own ahead: it runs from 8 to 15 ms, while step 4 computes until
/// 10 ms and from 17 to 18 ms.
fn launched_ahead() -> Trace {
    let ms = 1_000_000;
    trace(&[
        (Kind::Compute, (0, 10 * ms), 7, Some(0), None),
        (Kind::Collective(Function::AllReduce), (ms, 2 * ms), 8, Some(0), None),
        (Kind::Collective(Function::AllGather), (8 * ms, 15 * ms), 8, Some(STEP), None),
        (Kind::Compute, (17 * ms, 18 * ms), 7, Some(0), None),
        (Kind::Compute, (20 * ms, 30 * ms), 7, Some(STEP), None),
    ])
}

#[test]
fn a_collective_that_is_launched_ahead_is_communication_where_it_runs() {
    let ms = 1_000_000;
    let [fourth, fifth] = &found(&launched_ahead())[..] else { panic!("two steps") };
    assert_eq!((fourth.window, fifth.window), ((0, 18 * ms), (18 * ms, 30 * ms)));
    assert_eq!(fourth.collectives, [vec![(ms, 2 * ms)], vec![(8 * ms, 15 * ms)]]);
    assert_eq!(fifth.collectives, [vec![(8 * ms, 15 * ms)], vec![]], "it is a collective of the fifth step");
    assert_eq!(fourth.union(&[SpanKind::Idle]).as_slice(), [(15 * ms, 17 * ms)]);
    assert_eq!(fourth.union(&[SpanKind::Blocked]).total(), 0, "the fourth step does not wait for it");
    assert_eq!(fifth.union(&[SpanKind::Idle]).as_slice(), [(18 * ms, 20 * ms)]);
}

#[test]
fn parts_that_an_export_wrote_are_parts_again() {
    let trace = launched_ahead();
    let before = found(&trace);
    // An export has the part in the step in which it ran, and cuts the collective off at the begin of its own step.
    let mut exported = trace.clone();
    let name = comm_of_parts(1).to_string();
    exported.groups.push(Group { name, ranks: Some(vec![1]), size: Some(1) });
    exported.carried.push(Carried { group: Some(0), ..Carried::default() });
    let at =
        exported.work.iter().position(|work| work.kind == Kind::Collective(Function::AllGather)).unwrap();
    exported.work.insert(at, Work { correlation: 1, carried: Some(1), ..exported.work[at] });
    (exported.work[at + 1].begin, exported.work[at + 1].end) = (18_000_000, 18_000_001);
    exported.work.sort_by_key(|work| (work.begin, work.end));
    let after = found(&exported);
    assert_eq!(after.len(), 2);
    assert_eq!(after[0].collectives, before[0].collectives);
    assert_eq!(after[1].collectives, [vec![(18_000_000, 18_000_001)], vec![]]);
}
