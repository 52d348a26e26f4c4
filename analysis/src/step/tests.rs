//! Hand-made steps with results computed by hand, and properties that hold for any records.

use proptest::prelude::*;
use wire::event::{BucketRecord, Source, Span};
use wire::ids::{Comm, Seq};

use super::*;

fn span(kind: SpanKind, begin: i64, end: i64) -> Span {
    Span { step: Step(5), kind, begin: MonoNanos(begin), end: MonoNanos(end), cpu_nanos: 0 }
}

fn bucket(seq: u64, start: i64, end: i64) -> BucketRecord {
    BucketRecord {
        step: Step(5),
        comm: Comm(0),
        seq: Seq(seq),
        bucket: Bucket(seq as u32),
        bytes: 1_000,
        ready: MonoNanos(start),
        launch: MonoNanos(start),
        start: MonoNanos(start),
        end: MonoNanos(end),
        source: Source::HostClock,
    }
}

fn rank(end: i64, spans: Vec<Span>, buckets: Vec<BucketRecord>) -> Option<Box<RankStep>> {
    let record =
        StepRecord { step: Step(5), begin: MonoNanos(0), end: MonoNanos(end), samples: 8, shadow: false };
    Some(Box::new(RankStep { record, spans, buckets }))
}

fn exact(clock: u32, offset: i64) -> Option<ClockFit> {
    Some(ClockFit { clock, offset_nanos: offset, ..ClockFit::exact() })
}

/// Rank 1's clock is 1,000 ahead of rank 0's. Rank 0 waits in bucket 0 from 60 to 80 (hidden until its backward ends at
/// 70); both ranks transfer until 100.
fn two_ranks() -> (StepRecords, Vec<Option<ClockFit>>) {
    use SpanKind::{Backward, Blocked, Forward, Input, Optimizer};
    let fast = rank(
        110,
        vec![
            span(Input, 0, 10),
            span(Forward, 10, 30),
            span(Backward, 30, 100),
            span(Blocked, 70, 100),
            span(Optimizer, 100, 108),
        ],
        vec![bucket(0, 60, 100)],
    );
    let mut slow = rank(
        110,
        vec![
            span(Input, 0, 30),
            span(Forward, 30, 50),
            span(Backward, 50, 100),
            span(Blocked, 90, 100),
            span(Optimizer, 100, 108),
        ],
        vec![bucket(0, 80, 100)],
    );
    let shift = |time: &mut MonoNanos| *time = *time + 1_000;
    if let Some(slow) = &mut slow {
        [&mut slow.record.begin, &mut slow.record.end].into_iter().for_each(shift);
        slow.spans.iter_mut().flat_map(|span| [&mut span.begin, &mut span.end]).for_each(shift);
        let times =
            slow.buckets.iter_mut().flat_map(|b| [&mut b.ready, &mut b.launch, &mut b.start, &mut b.end]);
        times.for_each(shift);
    }
    (
        StepRecords { step: Step(5), ranks: vec![fast, slow], absent: 0 },
        vec![exact(0, 7_000), exact(1, 6_000)],
    )
}

#[test]
fn pauses_take_precedence_over_compute_and_input_but_not_over_collectives() {
    use SpanKind::{Backward, Checkpoint, Evaluation, Forward, GarbageCollection, Idle, Input};
    let spans = vec![
        // An evaluation with its own input.
        span(Evaluation, 0, 20),
        span(Input, 5, 15),
        span(Input, 20, 25),
        span(Forward, 25, 50),
        span(GarbageCollection, 30, 34),
        span(Backward, 50, 80),
        span(Checkpoint, 85, 98),
        span(Idle, 0, 3),
        span(Idle, 97, 100),
    ];
    let records =
        StepRecords { step: Step(5), ranks: vec![rank(100, spans, vec![bucket(0, 70, 90)])], absent: 0 };
    let step = analyze(&records, &[exact(0, 0)]);
    let own = step.ranks[0].as_ref().unwrap();
    assert_eq!(own.parts[Part::ExposedTransfer as usize], 10);
    assert_eq!(own.pauses, [8, 20, 4, 0]);
    //                          input h2d fwd bwd wait xfer opt pause idle other
    // Idle time is what no other part claims.
    assert_eq!(own.parts, [5, 0, 21, 30, 0, 10, 0, 32, 2, 0]);
    assert_eq!(own.compute_nanos, 51);
}

#[test]
fn a_hand_computed_step_is_analyzed_exactly() {
    let (records, fits) = two_ranks();
    let step = analyze(&records, &fits);
    let fast = step.ranks[0].as_ref().unwrap();
    //                     input h2d fwd bwd wait xfer opt pause idle other
    assert_eq!(fast.parts, [10, 0, 20, 40, 10, 20, 8, 0, 0, 2]);
    assert_eq!((fast.comm_nanos, fast.hidden_nanos, fast.tail_nanos), (40, 10, Some(30)));
    let slow = step.ranks[1].as_ref().unwrap();
    assert_eq!(slow.parts, [30, 0, 20, 40, 0, 10, 8, 0, 0, 2]);
    assert_eq!((fast.lateness_nanos, slow.lateness_nanos), (Some(-10.0), Some(10.0)));
    assert_eq!((fast.caused_wait_nanos, slow.caused_wait_nanos), (0, 20));
    let collective = &step.collectives[0];
    assert_eq!((collective.culprit, collective.transfer_nanos), (Some(1), Some(20.0)));
    // Both forms of the wait agree here, because the ends are equal.
    assert_eq!((collective.wait_nanos, collective.wait_clock_free_nanos), (Some(10.0), 10.0));
    assert_eq!(step.step_nanos(), 110);
    assert_eq!(step.overlap(), Some(20.0 / 60.0));
}

/// Builds a step with one collective that rank r starts at `starts[r]`, all until 100.
fn starting_at(starts: &[i64]) -> StepRecords {
    let ranks = starts.iter().map(|&start| rank(110, Vec::new(), vec![bucket(0, start, 100)])).collect();
    StepRecords { step: Step(5), ranks, absent: 0 }
}

fn caused(step: &StepAnalysis) -> Vec<u64> {
    step.present().map(|(_, rank)| rank.caused_wait_nanos).collect()
}

#[test]
fn a_rank_causes_the_wait_from_the_rank_before_it() {
    let fits = vec![exact(0, 0); 4];
    // Without rank 1, the collective would have started at 78. That rank 2 was early is not rank 1's doing.
    assert_eq!(caused(&analyze(&starting_at(&[70, 80, 10, 78]), &fits)), [60, 2, 0, 8]);
    // Of ranks that start together, only one is charged.
    assert_eq!(caused(&analyze(&starting_at(&[80, 80, 50, 50]), &fits)), [30, 0, 0, 0]);
}

#[test]
fn no_wait_is_caused_where_a_rank_is_missing_or_its_clock_not_aligned() {
    let mut fits = vec![exact(0, 0), exact(0, 0), None];
    assert_eq!(caused(&analyze(&starting_at(&[70, 80, 10]), &fits)), [0; 3]);
    fits[2] = exact(0, 0);
    let mut records = starting_at(&[70, 80, 10]);
    records.ranks[2] = None;
    assert_eq!(caused(&analyze(&records, &fits)), [0; 2]);
}

#[test]
fn an_overlap_that_is_only_assumed_is_a_range() {
    let (mut records, fits) = two_ranks();
    // Half of rank 0's collective, from which it is assumed to compute for 10, and nothing outside of it.
    let rank = records.ranks[0].as_mut().unwrap();
    rank.spans.push(span(SpanKind::Unclear, 40, 80));
    let step = analyze(&records, &fits);
    let own = step.ranks[0].as_ref().unwrap();
    assert_eq!((own.hidden_nanos, own.assumed_hidden_nanos, own.assumed_exposed_nanos), (10, 10, 10));
    assert_eq!((step.overlap(), step.is_overlap_known()), (None, false));
    assert_eq!(step.collectives[0].unclear_nanos, 20);
    let (known, _) = two_ranks();
    let parts = |step: &StepAnalysis| step.ranks[0].as_ref().unwrap().parts;
    assert_eq!(parts(&step), parts(&analyze(&known, &fits)), "the ledger shows what is assumed");
}

#[test]
fn the_clock_free_wait_is_used_if_the_clock_bound_exceeds_the_wait() {
    let (records, mut fits) = two_ranks();
    fits.iter_mut().flatten().for_each(|fit| fit.bound_nanos = 50);
    let step = analyze(&records, &fits);
    assert!(step.ranks[0].as_ref().unwrap().clock_free);
    assert_eq!(step.ranks[0].as_ref().unwrap().part(Part::ExposedWait), 10);
}

/// Both ranks of an all-to-all begin together, and one of them receives for longer.
#[test]
fn a_rank_that_ends_later_than_others_has_not_waited_for_as_long() {
    let (mut records, mut fits) = two_ranks();
    fits.iter_mut().flatten().for_each(|fit| fit.bound_nanos = 2);
    records.ranks[1].as_mut().unwrap().buckets[0] = bucket(0, 1_060, 1_080);
    let step = analyze(&records, &fits);
    let wait = |rank: usize| step.ranks[rank].as_ref().unwrap().part(Part::ExposedWait);
    assert_eq!(step.collectives[0].wait_clock_free_nanos, 10.0, "20 on one of two ranks");
    assert!(step.ranks[0].as_ref().unwrap().clock_free);
    assert_eq!((wait(0), wait(1)), (0, 0), "the clocks allow 4, which are hidden");
}

#[test]
fn figures_of_a_missing_rank_are_missing_and_not_zero() {
    let (mut records, fits) = two_ranks();
    records.ranks[1] = None;
    let step = analyze(&records, &fits);
    assert!(!step.complete && step.ranks[1].is_none());
    assert_eq!(step.collectives[0].wait_nanos, None);
    assert_eq!(step.ranks[0].as_ref().unwrap().lateness_nanos, None);
}

/// Two pairs of ranks reduce among themselves. Each pair is complete without the other one.
#[test]
fn a_collective_among_some_ranks_has_its_own_waits() {
    let (records, fits) = two_ranks();
    let mut ranks = records.ranks.clone();
    ranks.extend(records.ranks);
    for (at, rank) in ranks.iter_mut().enumerate() {
        let buckets = &mut rank.as_mut().unwrap().buckets;
        buckets.iter_mut().for_each(|bucket| bucket.comm = Comm(7 + at as u32 / 2));
    }
    let fits: Vec<Option<ClockFit>> = fits.iter().chain(&fits).copied().collect();
    let step = analyze(&StepRecords { step: Step(5), ranks: ranks.clone(), absent: 0 }, &fits);
    assert_eq!(step.collectives.len(), 2);
    for (pair, collective) in step.collectives.iter().enumerate() {
        assert_eq!(collective.group, Group { ranks: 2, stride: 1 });
        assert_eq!((collective.culprit, collective.wait_nanos), (Some(2 * pair + 1), Some(10.0)));
    }
    // In a step with a missing rank, the size of a group is unknown.
    ranks[3] = None;
    let step = analyze(&StepRecords { step: Step(5), ranks, absent: 0 }, &fits);
    assert!(step.collectives.iter().all(|collective| collective.wait_nanos.is_none()));
}

fn computes_until_70(buckets: Vec<BucketRecord>) -> StepRecords {
    let spans = vec![span(SpanKind::Forward, 0, 20), span(SpanKind::Backward, 20, 70)];
    StepRecords { step: Step(5), ranks: vec![rank(100, spans, buckets)], absent: 0 }
}

#[test]
fn the_part_of_another_steps_collective_is_communication_and_no_collective_of_the_step() {
    let comm = timing::parts::comm_of_parts(0);
    let part = BucketRecord { comm, bytes: 0, ..bucket(9, 60, 90) };
    let step = analyze(&computes_until_70(vec![bucket(0, 40, 75), part]), &[exact(0, 0)]);
    let found = step.ranks[0].as_ref().unwrap();
    assert_eq!((found.comm_nanos, found.hidden_nanos), (50, 30));
    assert_eq!((found.part(Part::ExposedTransfer), found.part(Part::Other)), (20, 10));
    assert_eq!(found.tail_nanos, Some(5), "the step does not wait for it");
    assert_eq!(step.collectives.iter().map(|collective| collective.seq).collect::<Vec<_>>(), [Seq(0)]);
}

#[test]
fn what_a_collective_takes_beyond_the_step_is_neither_hidden_nor_exposed_in_it() {
    let step = analyze(&computes_until_70(vec![bucket(0, -30, 10), bucket(1, -30, -10)]), &[exact(0, 0)]);
    let times: Vec<_> = step
        .collectives
        .iter()
        .map(|collective| (collective.duration_nanos, collective.hidden_nanos))
        .collect();
    assert_eq!(times, [(10, 10), (0, 0)]);
    assert_eq!(step.ranks[0].as_ref().unwrap().comm_nanos, 10);
}

fn any_rank() -> impl Strategy<Value = Option<Box<RankStep>>> {
    let any_span = (prop::sample::select(SpanKind::ALL.to_vec()), -50_i64..200, -20_i64..100)
        .prop_map(|(kind, begin, len)| span(kind, begin, begin + len));
    let any_bucket = (0_u64..4, -50_i64..200, -20_i64..100).prop_map(|(seq, s, len)| bucket(seq, s, s + len));
    let step = (0_i64..200, prop::collection::vec(any_span, 0..8), prop::collection::vec(any_bucket, 0..5))
        .prop_map(|(end, spans, buckets)| rank(end, spans, buckets));
    prop_oneof![1 => Just(None), 5 => step]
}

proptest! {
    /// The caused waits of a collective are not negative and sum to its longest wait, even if its records contradict each
    /// other.
    #[test]
    fn caused_waits_sum_to_the_longest_wait(
        ranks in prop::collection::vec(any_rank(), 1..5),
        offsets in prop::collection::vec(-100_i64..100, 5),
    ) {
        let records = StepRecords { step: Step(5), ranks, absent: 0 };
        let fits: Vec<Option<ClockFit>> = offsets.into_iter().map(|offset| exact(0, offset)).collect();
        for collective in Joined::new(&records, &fits).collectives {
            let caused = collective.caused_waits();
            prop_assert!(caused.iter().all(|(_, nanos)| *nanos >= 0), "{caused:?}");
            let waits: Option<Vec<i64>> = collective.members.iter().map(|member| member.wait.aligned).collect();
            let longest = waits.and_then(|waits| waits.into_iter().max());
            prop_assert_eq!(caused.iter().map(|(_, nanos)| nanos).sum::<i64>(), longest.unwrap_or(0));
        }
    }

    /// The ledger sums to the nanosecond, even if records overlap, run backward or lie outside the step.
    #[test]
    fn the_ledger_always_sums_to_the_step(
        ranks in prop::collection::vec(any_rank(), 1..4),
        bounds in prop::collection::vec(prop::option::of((-100_i64..100, 0_u64..50)), 4),
    ) {
        let fits: Vec<Option<ClockFit>> = bounds.into_iter().map(|fit| fit.map(|(offset, bound_nanos)| {
            ClockFit { bound_nanos, ..exact(offset as u32 % 2, offset).expect("a clock") }
        })).collect();
        let step = analyze(&StepRecords { step: Step(5), ranks, absent: 0 }, &fits);
        for (_, rank) in step.present() {
            prop_assert_eq!(rank.parts.iter().sum::<u64>(), rank.step_nanos);
            prop_assert!(rank.hidden_nanos <= rank.comm_nanos);
            prop_assert!(rank.assumed_hidden_nanos <= rank.hidden_nanos);
            prop_assert!(rank.hidden_nanos + rank.assumed_exposed_nanos <= rank.comm_nanos);
            let exposed = rank.part(Part::ExposedWait) + rank.part(Part::ExposedTransfer);
            prop_assert_eq!(exposed, rank.comm_nanos - rank.hidden_nanos);
        }
    }
}
