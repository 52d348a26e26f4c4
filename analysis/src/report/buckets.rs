//! The figures of each bucket.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use wire::event::Function;
use wire::ids::Bucket;
use wire::views::{BucketStats, Group};

use super::RunFacts;
use crate::step::{CollectiveAnalysis, StepAnalysis};
use crate::{latency, overlap, stats};

/// Returns the function of a collective. Jobs with the built-in reducer number all collectives by one count and run
/// only all-reduces.
pub(super) fn function(facts: &RunFacts, collective: &CollectiveAnalysis) -> Function {
    if facts.instrumentation.numbers_by_function() {
        Function::from_seq(collective.seq)
    } else {
        Function::AllReduce
    }
}

pub(super) fn bucket_stats(facts: &RunFacts, steps: &[&StepAnalysis]) -> Vec<BucketStats> {
    type Key = (Reverse<Group>, Bucket, u64, Function);
    let mut by_bucket: BTreeMap<Key, Vec<&CollectiveAnalysis>> = BTreeMap::new();
    for one in steps.iter().flat_map(|step| &step.collectives) {
        // The largest groups, which reduce the gradients, come first.
        let key = (Reverse(one.group), one.bucket, one.bytes, function(facts, one));
        by_bucket.entry(key).or_default().push(one);
    }
    let stats_of = |((Reverse(group), bucket, bytes, function), of): (Key, Vec<&CollectiveAnalysis>)| {
        let waits = of.iter().map(|c| c.wait_nanos.unwrap_or(c.wait_clock_free_nanos));
        let transfers = of.iter().map(|c| c.transfer_nanos.unwrap_or(c.transfer_clock_free_nanos));
        let wait_nanos = stats::spread(waits.clone())?;
        let transfer_nanos = stats::spread(transfers.clone())?;
        let duration: u64 = of.iter().map(|c| c.duration_nanos).sum();
        let hidden: u64 = of.iter().map(|c| c.hidden_nanos).sum();
        let unclear: u64 = of.iter().map(|c| c.unclear_nanos).sum();
        let is_hidden_known = duration > 0 && !overlap::is_assumed(unclear, duration);
        let Group { ranks, .. } = group;
        let full = function.full_bytes(bytes, ranks) as f64;
        // A sparse tensor's bytes are unknown, and recorded as 0.
        let algbw = (full > 0.0 && transfer_nanos.median > 0.0).then(|| full / transfer_nanos.median * 1e9);
        Some(BucketStats {
            group,
            function,
            bucket,
            bytes,
            collectives: of.len() as u64,
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
/// different latency than one of all ranks. A collective of unknown size is no point.
pub(super) fn model_points(buckets: &[BucketStats]) -> Vec<(u64, f64)> {
    let largest = buckets.first().map(|bucket| bucket.group);
    let of_largest = buckets.iter().filter(|bucket| Some(bucket.group) == largest);
    let sized = of_largest.filter(|bucket| bucket.bytes > 0);
    sized.map(|bucket| (bucket.bytes, bucket.transfer_nanos.median / 1e9)).collect()
}
