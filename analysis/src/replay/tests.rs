//! Replays of steps, compared with values computed by hand.

use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Source, Span, StepRecord};
use wire::ids::{Comm, Seq, Step};

use super::*;
use crate::records::RankStep;

const BUCKETS: u64 = 2;

/// The durations of one rank's input, forward, backward and optimizer. Two buckets become ready, in the middle and at
/// the end of backward. [`step`] fills in the times of collectives.
#[derive(Clone, Copy)]
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
    let of = |(rank, does): (usize, &Behavior)| {
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
        Some(RankStep {
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
        })
    };
    StepRecords { step: Step(7), ranks: ranks.iter().enumerate().map(of).collect(), absent: 0 }
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
        assert_eq!(
            (replay.measured_nanos, replay.simulated_nanos, replay.ideal_nanos),
            (125.0, 125.0, 125.0)
        );
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
        assert_eq!(replay.ideal_nanos, 135.0, "input at its mean of 20");
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
