//! Replays of steps with groups, compared with values computed by hand, in milliseconds.

use proptest::prelude::*;
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Source, Span, SpanKind, StepRecord};
use wire::ids::{Bucket, Seq, Step};

use super::*;
use crate::records::StepRecords;
use crate::replay::tests::{any_records, any_sets};
use crate::replay::{Replay, replay};
use timing::clocks::ClockFit;

const MILLI: i64 = 1_000_000;
const BACKWARD: i64 = 20;

/// Builds a step with forward passes of these lengths. At the end of forward, neighbors exchange their results in 1 ms.
/// At the end of backward, all ranks reduce gradients in 2 ms, which ends the step. All ranks begin at 0.
fn step(forward: &[i64]) -> StepRecords {
    let paired = |rank: usize| forward[rank / 2 * 2].max(forward[rank / 2 * 2 + 1]) + 1;
    let reduced = (0..forward.len()).map(paired).max().unwrap_or(0) + BACKWARD + 2;
    let rank_step = |(rank, &forward): (usize, &i64)| {
        let computed = paired(rank) + BACKWARD;
        let at = |millis: i64| MonoNanos(millis * MILLI);
        let span =
            |kind, begin, end| Span { step: Step(7), kind, begin: at(begin), end: at(end), cpu_nanos: 0 };
        let bucket = |comm: u32, start: i64, end: i64| BucketRecord {
            step: Step(7),
            comm: Comm(comm),
            seq: Seq(0),
            bucket: Bucket(0),
            bytes: 1_000,
            // The host is ahead of its device.
            ready: at(1),
            launch: at(1),
            start: at(start),
            end: at(end),
            source: Source::DeviceEvent,
        };
        let record = StepRecord { step: Step(7), begin: at(0), end: at(reduced), samples: 0, shadow: false };
        let spans = vec![
            span(SpanKind::Backward, 0, computed),
            span(SpanKind::Blocked, forward, paired(rank)),
            span(SpanKind::Blocked, computed, reduced),
        ];
        let pair = 7 + rank as u32 / 2;
        Some(Box::new(RankStep {
            record,
            spans,
            buckets: vec![bucket(pair, forward, paired(rank)), bucket(0, computed, reduced)],
        }))
    };
    StepRecords { step: Step(7), ranks: forward.iter().enumerate().map(rank_step).collect(), absent: 0 }
}

fn replayed(records: &StepRecords, bound_nanos: u64) -> Option<Replay> {
    let fit = ClockFit { bound_nanos, device_nanos: bound_nanos, ..ClockFit::exact() };
    let fits = vec![Some(fit); records.ranks.len()];
    replay(records, &fits, &Joined::new(records, &fits))
}

fn millis(nanos: f64) -> f64 {
    nanos / MILLI as f64
}

#[test]
fn a_late_rank_costs_the_delay_that_its_group_passes_on() {
    let found = replayed(&step(&[10, 10, 10, 16]), 0).unwrap();
    assert_eq!([found.measured_nanos, found.simulated_nanos].map(millis), [39.0, 39.0]);
    let saved: Vec<f64> = found.ranks.iter().map(|saving| millis(f64::from(*saving))).collect();
    // With a forward of 12, the mean of the other ranks, a rank that waits would delay nothing.
    assert_eq!(saved, [0.0, 0.0, 0.0, 6.0]);
    // Forward takes 11.5 in the mean over all ranks.
    assert_eq!(millis(found.even_nanos.into()), 39.0 - (11.5 + 1.0 + 20.0 + 2.0));
    assert_eq!(found.even_slowest_nanos, found.even_nanos);
    assert_eq!(millis(found.alike_nanos.into()), 6.0);
    assert!(found.group.is_none());
    // A collective among all ranks can be replayed without its transfer, which nothing hides.
    let buckets: Vec<f64> =
        found.collectives.iter().map(|collective| millis(f64::from(collective.saving_nanos))).collect();
    assert_eq!(buckets, [2.0]);
}

#[test]
fn late_ranks_of_two_groups_form_one_slow_group() {
    let found = replayed(&step(&[10, 16, 10, 16, 10, 10]), 0).unwrap();
    let group = found.group.unwrap();
    assert_eq!((group.ranks, millis(f64::from(group.saving_nanos))), (vec![1, 3], 6.0));
    assert!(found.ranks.iter().all(|saving| *saving < MILLI as f32), "{:?}", found.ranks);
}

#[test]
fn ranks_with_different_collectives_are_compared_by_phase() {
    let mut records = step(&[10, 10, 10, 16]);
    // The last pair has no collective of its own: its ranks work alone until the end.
    for rank in records.ranks[2..].iter_mut().flatten() {
        rank.buckets.remove(0);
    }
    let found = replayed(&records, 0).unwrap();
    // They were blocked for 1 ms, which has no cause now.
    assert_eq!(millis(found.simulated_nanos), 38.0);
    // Local work of rank 3 is 36, that of the others 30. Once it is fixed, the first pair is last, 1 ms later.
    assert!((millis(f64::from(found.ranks[3])) - 5.0).abs() < 0.01, "{:?}", found.ranks);
}

#[test]
fn a_blocking_collective_of_all_ranks_in_mid_step_is_replayed() {
    let found = replayed(&step(&[10, 16]), 0).unwrap();
    assert_eq!([found.measured_nanos, found.simulated_nanos].map(millis), [39.0, 39.0]);
    let saved: Vec<f64> = found.ranks.iter().map(|saving| millis(f64::from(*saving))).collect();
    assert_eq!(saved, [0.0, 6.0]);
    assert!(found.unpredictable == Some(Missing::WaitsMidStep));
}

/// Builds two pipelines of two stages. The first stage of each computes for its entry in `takes`, twice, and sends each
/// result to the second stage, which computes for 5 ms per result. Then all ranks reduce a norm in 1 ms.
fn pipelines(takes: [i64; 2]) -> StepRecords {
    let reduced = takes.into_iter().max().unwrap_or(0) * 2 + 5;
    let at = |millis: i64| MonoNanos(millis * MILLI);
    let span = |kind, begin, end| Span { step: Step(7), kind, begin: at(begin), end: at(end), cpu_nanos: 0 };
    let record = |comm: u32, function: Function, count: u64, start: i64, end: i64| BucketRecord {
        step: Step(7),
        comm: Comm(comm),
        seq: function.numbered(count),
        bucket: Bucket(count as u32),
        bytes: 1_000,
        ready: at(0),
        launch: at(0),
        start: at(start),
        end: at(end),
        source: Source::DeviceEvent,
    };
    let rank_step = |rank: usize| {
        let takes = takes[rank / 2];
        let is_second = rank % 2 == 1;
        // When its messages start, and when its compute ends.
        let (starts, computed) =
            if is_second { ([0, takes + 5], 2 * takes + 5) } else { ([takes, 2 * takes], 2 * takes) };
        let mut buckets: Vec<BucketRecord> = (1..)
            .zip(starts)
            .map(|(times, start)| {
                record(7 + rank as u32 / 2, Function::SendReceive, times as u64 - 1, start, takes * times)
            })
            .collect();
        let mut spans = vec![span(SpanKind::Backward, 0, computed)];
        if is_second {
            let waits = |bucket: &BucketRecord| Span {
                begin: bucket.start,
                end: bucket.end,
                ..span(SpanKind::Blocked, 0, 0)
            };
            spans.extend(buckets.iter().map(waits));
        }
        spans.push(span(SpanKind::Blocked, computed, reduced + 1));
        buckets.push(record(0, Function::AllReduce, 0, computed, reduced + 1));
        let record =
            StepRecord { step: Step(7), begin: at(0), end: at(reduced + 1), samples: 0, shadow: false };
        Some(Box::new(RankStep { record, spans, buckets }))
    };
    StepRecords { step: Step(7), ranks: (0..4).map(rank_step).collect(), absent: 0 }
}

#[test]
fn pipeline_stages_are_compared_with_the_same_stage_of_other_pipelines() {
    let found = replayed(&pipelines([10, 14]), 0).unwrap();
    assert_eq!([found.measured_nanos, found.simulated_nanos].map(millis), [34.0, 34.0]);
    // At the mean of all other ranks, a second stage would compute for 9.7 ms instead of 5 ms.
    let saved: Vec<f64> = found.ranks.iter().map(|saving| millis(f64::from(*saving))).collect();
    assert_eq!(saved, [0.0, 0.0, 8.0, 0.0]);
}

#[test]
fn groups_are_not_replayed_without_aligned_clocks() {
    assert!(replayed(&step(&[10, 10, 10, 16]), 5 * MILLI as u64).is_none());
}

/// Returns true if each collective becomes ready only after the ones before it stopped to hold up the rank. If it is ready
/// before, the replay delays it all the same, and less local work before that end delays it more.
fn is_in_order(rank: &Rank) -> bool {
    let mut held_until = 0.0;
    rank.parts.iter().all(|part| {
        let is_after = part.work.iter().sum::<f64>() >= held_until;
        held_until = part.held_at.map_or(held_until, |work| work.iter().sum::<f64>().max(held_until));
        is_after
    })
}

proptest! {
    /// Where all ranks begin at once, the fix of all ranks needs no correction, and the fixes of more ranks save no less.
    #[test]
    fn more_fixed_ranks_save_no_less(records in any_records(), [some, more] in any_sets()) {
        let fits = vec![Some(ClockFit::exact()); records.ranks.len()];
        let joined = Joined::new(&records, &fits);
        let mesh = Observed::new(&records, &fits).and_then(|observed| Mesh::new(&observed, &joined));
        let Some(mesh) = mesh.filter(|mesh| mesh.ranks.iter().all(is_in_order)) else { return Ok(()) };
        let ranks = 0..mesh.ranks.len();
        let measured: Vec<Line> = mesh.ranks.iter().map(|rank| rank.line(&Pace::AS_MEASURED)).collect();
        let own = |rank: usize| mesh.as_others(rank, &[rank]);
        let alike: Vec<Line> =
            ranks.clone().map(|rank| mesh.ranks[rank].fixed(&own(rank).never_longer(), 0.0)).collect();
        let played = |fixed: &[bool]| {
            let lines: Vec<&Line> =
                ranks.clone().map(|rank| if fixed[rank] { &alike[rank] } else { &measured[rank] }).collect();
            mesh.play(&lines)
        };
        let tolerance = 1e-6;
        let (none, all) = (played(&[false; 6]), played(&[true; 6]));
        prop_assert!(none >= played(&some) - tolerance && played(&some) >= played(&more) - tolerance);
        prop_assert!(played(&more) >= all - tolerance);
        // A rank's own fix may lengthen its segments, so it saves less.
        for fixed in ranks.clone() {
            let line = mesh.ranks[fixed].fixed(&own(fixed), 0.0);
            let mut lines: Vec<&Line> = measured.iter().collect();
            lines[fixed] = &line;
            prop_assert!(mesh.play(&lines) >= all - tolerance);
        }
    }
}
