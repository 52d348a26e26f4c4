//! The figures of each bucket.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use wire::event::Function;
use wire::ids::Bucket;
use wire::views::{BucketStats, Gap, GapKind, Group};

use super::facts::RunFacts;
use crate::step::{CollectiveAnalysis, StepAnalysis};
use crate::{latency, overlap, stats};

/// The largest number of buckets in a report. The sizes of collectives are the job's choice: those of a mixture of experts
/// may all differ, and each is then a bucket of its own.
const MOST_BUCKETS: usize = 4_096;

/// What tells buckets apart. The largest groups, which reduce the gradients, come first.
type Key = (Reverse<Group>, Bucket, u64, Function);

type ByBucket<'a> = BTreeMap<Key, Vec<&'a CollectiveAnalysis>>;

/// The figures of the buckets that took most time, and the number of all buckets.
pub(super) fn bucket_stats(facts: &RunFacts, steps: &[&StepAnalysis]) -> (Vec<BucketStats>, usize) {
    let mut by_bucket = ByBucket::new();
    for collective in steps.iter().flat_map(|step| &step.collectives) {
        let key =
            (Reverse(collective.group), collective.bucket, collective.bytes, facts.function(collective));
        by_bucket.entry(key).or_default().push(collective);
    }
    let all = by_bucket.len();
    (figures(longest(by_bucket, MOST_BUCKETS)), all)
}

/// Returns the `most` buckets whose collectives took most time.
fn longest(mut by_bucket: ByBucket, most: usize) -> ByBucket {
    if by_bucket.len() > most {
        let duration = |collectives: &[&CollectiveAnalysis]| {
            collectives.iter().map(|collective| collective.duration_nanos).sum::<u64>()
        };
        let mut durations: Vec<(u64, Key)> =
            by_bucket.iter().map(|(key, collectives)| (duration(collectives), *key)).collect();
        durations.sort_unstable();
        let left_out = &durations[..durations.len() - most];
        left_out.iter().for_each(|(_, key)| drop(by_bucket.remove(key)));
    }
    by_bucket
}

/// Returns what the report says if it has only `listed` of all buckets.
pub(super) fn left_out(listed: usize, all: usize) -> Option<Gap> {
    (listed < all).then(|| Gap {
        kind: GapKind::Buckets,
        sentence: format!(
            "collectives differ in {} buckets and sizes: figures per bucket and the all-reduce model are of the {} that took \
             most time",
            units::count(all as u64),
            units::count(listed as u64)
        ),
    })
}

fn figures(by_bucket: ByBucket) -> Vec<BucketStats> {
    let stats_of =
        |((Reverse(group), bucket, bytes, function), collectives): (Key, Vec<&CollectiveAnalysis>)| {
            let waits = collectives.iter().map(|c| c.wait_nanos.unwrap_or(c.wait_clock_free_nanos));
            let transfers =
                collectives.iter().map(|c| c.transfer_nanos.unwrap_or(c.transfer_clock_free_nanos));
            let wait_nanos = stats::spread(waits.clone())?;
            let transfer_nanos = stats::spread(transfers.clone())?;
            let duration: u64 = collectives.iter().map(|c| c.duration_nanos).sum();
            let hidden: u64 = collectives.iter().map(|c| c.hidden_nanos).sum();
            let unclear: u64 = collectives.iter().map(|c| c.unclear_nanos).sum();
            let is_hidden_known = duration > 0 && !overlap::is_assumed(unclear, duration);
            let Group { ranks, .. } = group;
            let full = function.full_bytes(bytes, ranks) as f64;
            // A sparse tensor's bytes are unknown, and recorded as 0.
            let algbw =
                (full > 0.0 && transfer_nanos.median > 0.0).then(|| full / transfer_nanos.median * 1e9);
            Some(BucketStats {
                group,
                function,
                bucket,
                bytes,
                collectives: collectives.len() as u64,
                wait_nanos,
                transfer_nanos,
                latency: latency::histogram(waits, transfers),
                hidden_ratio: is_hidden_known.then(|| hidden as f64 / duration as f64),
                algbw,
                busbw: algbw.zip(function.bus_factor(ranks)).map(|(algbw, factor)| algbw * factor),
                parameters: None,
            })
        };
    by_bucket.into_iter().filter_map(stats_of).collect()
}

/// Returns the points of the communication model, from the largest groups only: a communicator of two ranks has a
/// different latency than one of all ranks. A collective of unknown size is not a point.
pub(super) fn model_points(buckets: &[BucketStats]) -> Vec<(u64, f64)> {
    let largest = buckets.first().map(|bucket| bucket.group);
    let reducing = buckets.iter().filter(|bucket| Some(bucket.group) == largest);
    let sized = reducing.filter(|bucket| bucket.bytes > 0);
    sized.map(|bucket| (bucket.bytes, bucket.transfer_nanos.median / 1e9)).collect()
}

#[cfg(test)]
mod tests {
    use wire::ids::Seq;

    use super::*;
    use crate::fixtures;

    fn collective(bytes: u64, duration_nanos: u64) -> CollectiveAnalysis {
        CollectiveAnalysis {
            seq: Seq(bytes),
            bytes,
            wait_nanos: Some(0.0),
            transfer_nanos: Some(duration_nanos as f64),
            transfer_clock_free_nanos: duration_nanos as f64,
            duration_nanos,
            ..fixtures::collective()
        }
    }

    #[test]
    fn of_too_many_sizes_those_that_took_most_time_are_listed_in_order() {
        let collectives: Vec<CollectiveAnalysis> = [(8, 5), (2, 90), (4, 60), (4, 60), (6, 100)]
            .map(|(bytes, nanos)| collective(bytes, nanos))
            .into();
        let mut by_bucket = ByBucket::new();
        for collective in &collectives {
            let key = (Reverse(collective.group), collective.bucket, collective.bytes, Function::AllReduce);
            by_bucket.entry(key).or_default().push(collective);
        }
        let sizes = |most| {
            figures(longest(by_bucket.clone(), most)).iter().map(|size| size.bytes).collect::<Vec<_>>()
        };
        assert_eq!(sizes(4), [2, 4, 6, 8]);
        assert_eq!(sizes(2), [4, 6]);
    }

    #[test]
    fn a_report_says_which_buckets_its_figures_are_of() {
        assert!(left_out(4_096, 4_096).is_none());
        let said = left_out(4_096, 30_000).expect("some are left out").sentence;
        assert!(said.contains("30,000 buckets and sizes") && said.contains("the 4,096 that"), "{said}");
    }
}
