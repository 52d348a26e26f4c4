//! Collectives are matched whatever is cut off, and whatever the ranks are called.

use proptest::prelude::*;
use wire::clock::MonoNanos;

use super::super::clocks::{from_ends, proofs};
use super::*;
use wire::event::{Event, Source};

const COMM: Comm = Comm(0);

/// The all-reduces of a rank that ended at these times, numbered from the last one back, as traces are. `ahead` is how far its clock is
/// ahead. All take a tenth of a millisecond, or longer on ranks that wait.
fn rank(step: u64, ends: &[i64], ahead: i64) -> Vec<Proof> {
    let event = |(at, &end): (usize, &i64)| {
        let count = ((step + 1) << 20) - (ends.len() - at) as u64;
        let time = |nanos: i64| MonoNanos(nanos + ahead);
        Event::Bucket(BucketRecord {
            step: Step(step),
            comm: COMM,
            seq: Function::AllReduce.numbered(count),
            bucket: Bucket(at as u32),
            bytes: 8,
            ready: time(end - 100_000),
            launch: time(end - 100_000),
            start: time(end - 100_000),
            end: time(end),
            source: Source::ActivityRecord,
        })
    };
    proofs(&ends.iter().enumerate().map(event).collect::<Vec<_>>())
}

fn remaining(ends: &[i64], begin: usize, count: usize) -> Vec<i64> {
    let end = (begin + count).min(ends.len());
    [&ends[..begin.min(ends.len())], &ends[end..]].concat()
}

/// Matches ranks, and returns which of `ends` each rank has under which number.
fn found(mut ranks: Vec<Vec<Proof>>, aheads: &[i64]) -> Vec<BTreeMap<Seq, i64>> {
    let known = from_ends(&alike(&ranks));
    let _ = matched(&mut ranks, &known);
    let shifted = |(proofs, ahead): (Vec<Proof>, &i64)| {
        proofs.into_iter().map(|proof| (proof.seq, proof.end.0 - ahead)).collect()
    };
    ranks.into_iter().zip(aheads).map(shifted).collect()
}

proptest! {
    /// Wherever collectives of a rank are missing, the others are matched with the right ones, and what is missing counts on no rank.
    #[test]
    fn what_is_missing_on_a_rank_moves_nothing(
        gaps in prop::collection::vec(500_000_i64..5_000_000, 8..30),
        aheads in prop::collection::vec(-90_000_000_000_i64..90_000_000_000, 3),
        begin in 0_usize..40,
        count in 1_usize..4,
        rank_with_gap in 0_usize..3,
    ) {
        // No two gaps are alike.
        let gaps = gaps.iter().zip(0..).map(|(gap, number)| gap + number * 1_000 + 30_000 * (number % 2));
        let ends: Vec<i64> = gaps.scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
        let begin = begin.min(ends.len() - count);
        let left = remaining(&ends, begin, count);
        let ranks = (0..3).map(|number| rank(2, if number == rank_with_gap { &left } else { &ends }, aheads[number])).collect();
        for offsets in found(ranks, &aheads) {
            let own: Vec<i64> = offsets.into_values().collect();
            prop_assert_eq!(&own, &left);
        }
    }
}

#[test]
fn collectives_in_step_with_each_other_are_matched_by_the_clock_of_other_steps() {
    // All-reduces of the cut step are equally far apart, so that their ends alone do not say which is which.
    let whole: Vec<i64> = [1, 2, 5, 7, 11].map(|at| at * 1_000_000).to_vec();
    let even: Vec<i64> = (20..30).map(|at| at * 1_000_000).collect();
    let aheads = [0, 7_000_000_000];
    let ranks_with =
        |ends: &[i64], at: usize| [rank(2, &whole, aheads[at]), rank(3, ends, aheads[at])].concat();
    let both = found(vec![ranks_with(&even, 0), ranks_with(&even[..8], 1)], &aheads);
    assert_eq!(both[0], both[1]);
    assert_eq!(both[0].values().copied().collect::<Vec<_>>(), [&whole[..], &even[..8]].concat());
}

#[test]
fn ranks_that_have_the_same_collectives_stay_as_they_are() {
    let ends: Vec<i64> = [1, 2, 5, 7, 11].map(|at| at * 1_000_000).to_vec();
    let mut ranks = vec![rank(2, &ends, 0), rank(2, &ends, 3_000_000_000)];
    let known = from_ends(&alike(&ranks));
    assert!(matched(&mut ranks, &known).iter().all(Places::is_empty));
}

#[test]
fn collectives_whose_ends_fit_nowhere_stay_as_they_are() {
    let ends: Vec<i64> = [1, 2, 5, 7, 11].map(|at| at * 1_000_000).to_vec();
    let others: Vec<i64> = [1, 9, 17, 40].map(|at| at * 1_300_000).to_vec();
    let mut ranks = vec![rank(2, &ends, 0), rank(2, &others, 0)];
    assert!(matched(&mut ranks, &[None, None]).iter().all(Places::is_empty));
}

#[test]
fn what_another_rank_lacks_becomes_a_part() {
    let ends: Vec<i64> = [1, 2, 5, 7, 11].map(|at| at * 1_000_000).to_vec();
    let mut ranks = vec![rank(2, &ends, 0), rank(2, &ends[..4], 0)];
    let changes = matched(&mut ranks, &[None, None]);
    let record = |proof: &Proof| BucketRecord {
        step: proof.step,
        comm: proof.comm,
        seq: proof.seq,
        bucket: proof.bucket,
        bytes: 8,
        ready: proof.end,
        launch: proof.end,
        start: proof.end,
        end: proof.end,
        source: Source::ActivityRecord,
    };
    let parts = Comm(u32::MAX - 7);
    let replaced = |mut record: BucketRecord, at: usize| {
        replace(&mut record, &changes[at], parts);
        record
    };
    let own: Vec<BucketRecord> =
        rank(2, &ends, 0).iter().map(record).map(|record| replaced(record, 0)).collect();
    let other: Vec<BucketRecord> =
        rank(2, &ends[..4], 0).iter().map(record).map(|record| replaced(record, 1)).collect();
    assert_eq!((own[4].comm, own[4].bytes), (parts, 0));
    let numbers =
        |records: &[BucketRecord]| records.iter().map(|record| (record.comm, record.seq)).collect::<Vec<_>>();
    assert_eq!(numbers(&own[..4]), numbers(&other));
}
