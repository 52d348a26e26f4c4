//! Replays of steps, compared with values computed by hand.

use proptest::prelude::*;
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Source, Span, StepRecord};
use wire::ids::{Comm, Seq, Step};

use super::*;
use crate::records::RankStep;
use crate::step::{StepAnalysis, analyze};
use crate::what_if::what_if;

const BUCKETS: u64 = 2;

/// The durations of one rank's input, forward, backward and optimizer. Two buckets become ready, in the middle and at
/// the end of backward. [`step`] fills in the times of collectives.
#[derive(Clone, Copy, Debug)]
struct Behavior {
    input: i64,
    forward: i64,
    backward: i64,
    optimizer: i64,
}

const USUAL: Behavior = Behavior { input: 10, forward: 30, backward: 60, optimizer: 5 };
const TRANSFER: i64 = 20;

fn replayed(records: &StepRecords, fits: &[Option<ClockFit>]) -> Option<Replay> {
    replay(records, fits, &Joined::new(records, fits))
}

/// Builds a step in which all ranks begin at 0 and a collective takes [`TRANSFER`] plus the rank's entry in `late`.
fn step(ranks: &[Behavior], late: &[i64]) -> StepRecords {
    let ready = |does: &Behavior, bucket: i64| does.input + does.forward + does.backward * (bucket + 1) / 2;
    let mut free = vec![0; ranks.len()];
    let mut buckets: Vec<Vec<BucketRecord>> = vec![Vec::new(); ranks.len()];
    for bucket in 0..BUCKETS as i64 {
        let starts: Vec<i64> =
            ranks.iter().zip(&free).map(|(does, free)| ready(does, bucket).max(*free)).collect();
        let begin = *starts.iter().max().unwrap();
        for (rank, does) in ranks.iter().enumerate() {
            free[rank] = begin + TRANSFER + late[rank];
            buckets[rank].push(BucketRecord {
                step: Step(7),
                comm: Comm(0),
                seq: Seq(bucket as u64),
                bucket: Bucket(bucket as u32),
                bytes: 1_000,
                ready: MonoNanos(ready(does, bucket)),
                launch: MonoNanos(ready(does, bucket)),
                start: MonoNanos(starts[rank]),
                end: MonoNanos(free[rank]),
                source: Source::HostClock,
            });
        }
    }
    let record = |(rank, does): (usize, &Behavior)| {
        let span = |kind, begin, end| Span {
            step: Step(7),
            kind,
            begin: MonoNanos(begin),
            end: MonoNanos(end),
            cpu_nanos: 0,
        };
        let backward_end = ready(does, 1);
        let reduced = free[rank];
        let end = reduced + does.optimizer;
        Some(Box::new(RankStep {
            record: StepRecord {
                step: Step(7),
                begin: MonoNanos(0),
                end: MonoNanos(end),
                samples: 1,
                shadow: false,
            },
            spans: vec![
                span(SpanKind::Input, 0, does.input),
                span(SpanKind::Forward, does.input, does.input + does.forward),
                span(SpanKind::Backward, does.input + does.forward, reduced),
                span(SpanKind::Blocked, backward_end, reduced),
                span(SpanKind::Optimizer, reduced, end),
            ],
            buckets: buckets[rank].clone(),
        }))
    };
    StepRecords { step: Step(7), ranks: ranks.iter().enumerate().map(record).collect(), absent: 0 }
}

fn exact(ranks: usize) -> Vec<Option<ClockFit>> {
    let fit = ClockFit::exact();
    vec![Some(fit); ranks]
}

fn both_ways(ranks: &[Behavior], late: &[i64]) -> [Replay; 2] {
    let records = step(ranks, late);
    [exact(ranks.len()), vec![None; ranks.len()]].map(|fits| replayed(&records, &fits).unwrap())
}

#[test]
fn an_even_step_replays_exactly_and_saves_nothing() {
    for replay in both_ways(&[USUAL; 4], &[0; 4]) {
        // 100 of local work before the last bucket, 20 of transfer, 5 of optimizer.
        assert_eq!((replay.measured_nanos, replay.simulated_nanos), (125.0, 125.0));
        assert_eq!([replay.even_nanos, replay.even_slowest_nanos, replay.alike_nanos], [0.0; 3]);
        assert_eq!(replay.ranks, [0.0; 4]);
        assert_eq!(replay.phases, [0.0; PHASES]);
        // The first bucket's transfer is hidden behind 30 of backward; the second bucket's transfer is not hidden.
        let savings: Vec<f32> = replay.collectives.iter().map(|collective| collective.saving_nanos).collect();
        assert_eq!(savings, [0.0, 20.0]);
        assert!(replay.group.is_none());
    }
}

#[test]
fn the_last_rank_costs_the_time_by_which_it_is_late() {
    let slow = Behavior { input: 50, ..USUAL };
    for replay in both_ways(&[USUAL, slow, USUAL, USUAL], &[0; 4]) {
        assert_eq!(replay.simulated_nanos, replay.measured_nanos);
        assert_eq!(replay.ranks, [0.0, 40.0, 0.0, 0.0]);
        assert_eq!(replay.even_nanos, 30.0, "input at its mean of 20");
        assert_eq!(replay.even_slowest_nanos, 30.0, "the slow rank at the mean of all");
        assert_eq!(replay.alike_nanos, 40.0, "the slow rank at the mean of the others");
        assert_eq!(replay.phase(Phase::Input), 30.0);
        assert_eq!(replay.phase(Phase::Backward), 0.0);
    }
}

#[test]
fn work_after_the_last_bucket_counts() {
    let slow = Behavior { optimizer: 25, ..USUAL };
    for replay in both_ways(&[USUAL, USUAL, slow], &[0; 3]) {
        assert_eq!(replay.ranks[2], 20.0);
    }
}

#[test]
fn a_slow_link_costs_the_transfer_that_backward_does_not_hide() {
    let [aligned, _] = both_ways(&[USUAL; 4], &[0, 0, 15, 0]);
    // The first bucket's additional 15 run behind backward, which leaves 10 (30 less 20 of transfer). The other 5 delay
    // the second bucket, which is 15 late itself.
    assert_eq!(aligned.ranks, [0.0, 0.0, 20.0, 0.0]);
}

#[test]
fn ranks_that_are_slow_together_form_one_group() {
    let slow = Behavior { forward: 70, ..USUAL };
    let slower = Behavior { forward: 72, ..USUAL };
    for replay in both_ways(&[USUAL, slow, USUAL, slower, USUAL], &[0; 5]) {
        assert!(replay.ranks.iter().all(|&saving| saving <= 2.0), "{replay:?}");
        let group = replay.group.unwrap();
        assert_eq!(group.ranks, [3, 1]);
        assert!((group.saving_nanos - 42.0).abs() < 1e-3, "{group:?}");
    }
}

#[test]
fn steps_with_missing_records_are_not_replayed() {
    let mut records = step(&[USUAL; 2], &[0; 2]);
    records.ranks[1].as_mut().unwrap().buckets.pop();
    assert!(replayed(&records, &exact(2)).is_none(), "a collective without one of the ranks");
    records.ranks[1] = None;
    assert!(replayed(&records, &exact(2)).is_none());
}

#[test]
fn a_step_delayed_by_a_cause_outside_the_graph_is_not_trusted() {
    // Compute that waits for a collective in the middle of a step is not in the graph.
    let mut records = step(&[USUAL; 2], &[0; 2]);
    for rank in records.ranks.iter_mut().flatten() {
        for bucket in &mut rank.buckets {
            bucket.end = bucket.end + 40;
        }
    }
    assert!(!replayed(&records, &exact(2)).unwrap().is_trusted());
}

/// Draws what ranks do, and how much longer their collectives take.
fn any_ranks() -> impl Strategy<Value = Vec<(Behavior, i64)>> {
    let behavior = (0_i64..50, 1_i64..80, 1_i64..120, 0_i64..40);
    let behavior = behavior.prop_map(|(input, forward, backward, optimizer)| Behavior {
        input,
        forward,
        backward,
        optimizer,
    });
    prop::collection::vec((behavior, 0_i64..30), 1..7)
}

/// The records of one rank's step: its spans, each after a gap, and its collectives. The latter begin and end with a blocked
/// span if `is_held` and there is one.
fn rank_of(
    spans: &[(SpanKind, i64, i64)],
    collectives: &[(i64, i64, i64)],
    is_held: bool,
    rank: usize,
) -> RankStep {
    let mut at = 0;
    let span = |&(kind, gap, nanos): &(SpanKind, i64, i64)| {
        let begin = at + gap;
        at = begin + nanos;
        Span { step: Step(7), kind, begin: MonoNanos(begin), end: MonoNanos(at), cpu_nanos: 0 }
    };
    let spans: Vec<Span> = spans.iter().map(span).collect();
    let mut blocked = spans.iter().filter(|span| is_held && span.kind == SpanKind::Blocked);
    let bucket = |(seq, &(start, queue, nanos)): (usize, &(i64, i64, i64))| {
        let (start, end) = match blocked.next() {
            Some(span) => (span.begin, span.end),
            None => (MonoNanos(start), MonoNanos(start + nanos)),
        };
        // The first collective of a rank that is held is among neighbors.
        let comm = Comm(if is_held && seq == 0 { 1 + rank as u32 / 2 } else { 0 });
        let ready = start + -queue;
        BucketRecord {
            step: Step(7),
            comm,
            seq: Seq(seq as u64),
            bucket: Bucket(seq as u32),
            bytes: 1_000,
            ready,
            launch: ready,
            start,
            end,
            source: Source::HostClock,
        }
    };
    let buckets = collectives.iter().enumerate().map(bucket).collect();
    let end = MonoNanos(at + 10);
    let record = StepRecord { step: Step(7), begin: MonoNanos(0), end, samples: 1, shadow: false };
    RankStep { record, spans, buckets }
}

/// Draws the records of a step whose times may contradict each other. In half of the steps, some ranks are held up by
/// collectives, so that they are replayed rank by rank.
pub(in crate::replay) fn any_records() -> impl Strategy<Value = StepRecords> {
    use SpanKind::{Backward, Blocked, Forward, Input, Optimizer};
    let kinds = prop::sample::select(vec![Input, Forward, Backward, Backward, Blocked, Blocked, Optimizer]);
    let spans = prop::collection::vec((kinds, 0_i64..20, 0_i64..40), 0..14);
    let times = prop::collection::vec((0_i64..300, 0_i64..40, 0_i64..60), 4);
    (prop::collection::vec((spans, times), 2..6), 0_usize..5, any::<bool>()).prop_map(
        |(ranks, count, is_held)| {
            let rank = |(rank, (spans, times)): (usize, &(Vec<_>, Vec<_>))| {
                Some(Box::new(rank_of(spans, &times[..count.min(4)], is_held, rank)))
            };
            StepRecords { step: Step(7), ranks: ranks.iter().enumerate().map(rank).collect(), absent: 0 }
        },
    )
}

/// Draws whether each rank is in two sets, the first of which is part of the second.
pub(in crate::replay) fn any_sets() -> impl Strategy<Value = [Vec<bool>; 2]> {
    prop::collection::vec((any::<bool>(), any::<bool>()), 6).prop_map(|ranks| {
        [
            ranks.iter().map(|(some, more)| *some && *more).collect(),
            ranks.iter().map(|(_, more)| *more).collect(),
        ]
    })
}

fn shifted_fits(offsets: &[i64], ranks: usize) -> Vec<Option<ClockFit>> {
    offsets[..ranks]
        .iter()
        .map(|&offset_nanos| Some(ClockFit { offset_nanos, ..ClockFit::exact() }))
        .collect()
}

fn assert_no_fix_saves_more_than_all(step: &StepAnalysis) -> Result<(), TestCaseError> {
    let Some(replay) = &step.replay else { return Ok(()) };
    let group = replay.group.iter().map(|group| group.saving_nanos);
    for saving in replay.ranks.iter().chain(&replay.phases).copied().chain(group).chain([0.0]) {
        prop_assert!(replay.alike_nanos >= saving, "{replay:?}");
    }
    let Ok(answer) = what_if(&[step]) else { return Ok(()) };
    prop_assert!(answer.slowdown >= 1.0 && answer.even_slowdown >= 1.0, "{answer:?}");
    if let Some(share) = answer.slowest_share.known() {
        prop_assert!((0.0..=1.0).contains(share), "{answer:?}");
    }
    for saving in answer.ranks.iter().chain(&answer.phases) {
        prop_assert!(answer.wasted_share >= saving.share, "{saving:?} of {answer:?}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_fix_saves_more_than_that_of_all_ranks(
        ranks in any_ranks(),
        records in any_records(),
        offsets in prop::collection::vec(-40_i64..40, 6),
    ) {
        let (does, late): (Vec<Behavior>, Vec<i64>) = ranks.into_iter().unzip();
        let consistent = step(&does, &late);
        for records in [&consistent, &records] {
            let ranks = records.ranks.len();
            for fits in [vec![None; ranks], exact(ranks), shifted_fits(&offsets, ranks)] {
                assert_no_fix_saves_more_than_all(&analyze(records, &fits))?;
            }
        }
    }

    /// Where all ranks begin at once, the fix of all ranks needs no correction, and the fixes of more ranks save no less.
    #[test]
    fn more_fixed_ranks_save_no_less(records in any_records(), [some, more] in any_sets()) {
        let fits = vec![None; records.ranks.len()];
        let joined = Joined::new(&records, &fits);
        let Some(graph) = Observed::new(&records, &fits).and_then(|observed| Graph::new(&observed, &joined)) else { return Ok(()) };
        let usual = Usual::new(&graph);
        let as_measured = |rank: usize| graph.line(rank, &[1.0; PHASES], None);
        let alike = |rank: usize| graph.line(rank, &never_longer(usual.scale(&graph, rank, &[rank])), Some(&usual));
        let played = |set: &[bool]| graph.play(|rank| if set[rank] { alike(rank) } else { as_measured(rank) });
        let tolerance = 1e-6;
        let (none, all) = (graph.play(as_measured), graph.play(alike));
        prop_assert!(none >= played(&some) - tolerance && played(&some) >= played(&more) - tolerance);
        prop_assert!(played(&more) >= all - tolerance);
        // A rank's own fix may lengthen its segments, so it saves less.
        for fixed in 0..graph.ranks.len() {
            let own = |rank: usize| graph.line(rank, &usual.scale(&graph, rank, &[rank]), Some(&usual));
            let alone = graph.play(|rank| if rank == fixed { own(rank) } else { as_measured(rank) });
            prop_assert!(alone >= all - tolerance);
        }
    }
}

/// Two ranks that are late together save nothing alone. So savings do not add up.
#[test]
fn savings_do_not_add_up() {
    let slow = Behavior { forward: 70, ..USUAL };
    for replay in both_ways(&[USUAL, slow, slow, USUAL], &[0; 4]) {
        assert_eq!(replay.ranks, [0.0; 4]);
        assert_eq!(replay.alike_nanos, 40.0, "{replay:?}");
    }
}

fn work_of(spans: &[(SpanKind, i64, i64)], end: i64) -> graph::Work {
    let span = |&(kind, begin, end): &(SpanKind, i64, i64)| Span {
        step: Step(7),
        kind,
        begin: MonoNanos(begin),
        end: MonoNanos(end),
        cpu_nanos: 0,
    };
    let record =
        StepRecord { step: Step(7), begin: MonoNanos(0), end: MonoNanos(end), samples: 1, shadow: false };
    graph::Work::new(&RankStep { record, spans: spans.iter().map(span).collect(), buckets: Vec::new() })
}

/// Neighboring spans of one phase count as one, and time that two spans say the thread was blocked counts once.
#[test]
fn local_work_is_the_time_of_each_phase_less_blocked_time() {
    use SpanKind::{Backward, Blocked, Forward};
    let spans =
        [(Forward, 5, 20), (Forward, 20, 30), (Backward, 30, 60), (Blocked, 40, 50), (Blocked, 45, 55)];
    let work = work_of(&spans, 70);
    let durations = |time: i64| {
        let work = work.durations_until(time);
        [Phase::Forward, Phase::Backward, Phase::Other].map(|phase| work[phase as usize])
    };
    assert_eq!(durations(0), [0.0, 0.0, 0.0]);
    assert_eq!(durations(25), [20.0, 0.0, 5.0]);
    assert_eq!(durations(42), [25.0, 10.0, 5.0]);
    assert_eq!(durations(58), [25.0, 13.0, 5.0]);
    assert_eq!(durations(100), [25.0, 15.0, 15.0]);
    assert_eq!(work.last_blocked(), Some((45, 55)));
    assert!(work.is_blocked(41, 55) && !work.is_blocked(30, 50));
}

/// Both ranks compute for 10, wait until 15 for a collective that began at -50 or at -30, before the step, and update for 5.
#[test]
fn a_collective_that_began_before_the_step_takes_what_it_takes_within_the_step() {
    let mut records = step(&[Behavior { input: 0, forward: 0, backward: 10, optimizer: 5 }; 2], &[-15, -15]);
    for (rank, start) in records.ranks.iter_mut().flatten().zip([-50, -30]) {
        assert_eq!(rank.record.end, MonoNanos(20));
        rank.buckets.truncate(1);
        let (start, end) = (MonoNanos(start), MonoNanos(15));
        rank.buckets[0] = BucketRecord { ready: start, launch: start, start, end, ..rank.buckets[0] };
    }
    let replay = replayed(&records, &exact(2)).unwrap();
    assert_eq!((replay.measured_nanos, replay.simulated_nanos), (20.0, 20.0));
    assert_eq!(replay.collectives[0].transfer_nanos, 15.0);
}

proptest! {
    /// Local work by its definition, one nanosecond at a time.
    #[test]
    fn local_work_agrees_with_counting(records in any_records(), time in 0_i64..400) {
        let step = records.ranks[0].as_ref().unwrap();
        let covers = |span: &Span, at: i64| span.begin.0 <= at && at < span.end.0;
        let mut counted = [0.0; PHASES];
        for at in 0..time.min(step.record.end.0) {
            let here = || step.spans.iter().filter(move |span| covers(span, at));
            if here().all(|span| span.kind != SpanKind::Blocked) {
                let phase = here().find_map(|span| phase_of(span.kind)).unwrap_or(Phase::Other);
                counted[phase as usize] += 1.0;
            }
        }
        prop_assert_eq!(graph::Work::new(step).durations_until(time), counted);
    }
}
