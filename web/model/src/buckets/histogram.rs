//! The distributions of latencies as bars that can be compared from bucket to bucket.

use std::ops::Range;

use wire::views::{BucketStats, LatencyHistogram};

/// The bars of one bucket: shares of its highest bar, 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// The waits, shortest first.
    pub waits: Vec<f64>,
    /// The transfers, shortest first.
    pub transfers: Vec<f64>,
}

/// Returns the bins that any of the buckets uses.
#[must_use]
pub fn bins(buckets: &[BucketStats]) -> Range<u32> {
    let used = buckets.iter().map(|stats| &stats.latency).filter(|latency| !latency.transfers.is_empty());
    let first = used.clone().map(|latency| latency.first).min().unwrap_or(0);
    let past = used.map(|latency| latency.first + latency.transfers.len() as u32).max().unwrap_or(first);
    first..past
}

/// Returns the bars of a histogram, one per bin of `bins`.
#[must_use]
pub fn bars(latency: &LatencyHistogram, bins: &Range<u32>) -> Bars {
    let counts = |counts: &[u32]| -> Vec<f64> {
        bins.clone()
            .map(|bin| bin.checked_sub(latency.first).and_then(|at| counts.get(at as usize)))
            .map(|count| f64::from(count.copied().unwrap_or(0)))
            .collect()
    };
    let (waits, transfers) = (counts(&latency.waits), counts(&latency.transfers));
    let most = waits.iter().chain(&transfers).copied().fold(0.0, f64::max).max(1.0);
    let shares = |counts: Vec<f64>| counts.into_iter().map(|count| count / most).collect();
    Bars { waits: shares(waits), transfers: shares(transfers) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_has_a_bar_for_every_bin_of_all() {
        let latency = LatencyHistogram { first: 3, waits: vec![2, 0], transfers: vec![1, 4] };
        assert_eq!(
            bars(&latency, &(2..6)),
            Bars { waits: vec![0.0, 0.5, 0.0, 0.0], transfers: vec![0.0, 0.25, 1.0, 0.0] }
        );
        assert_eq!(bars(&LatencyHistogram::default(), &(0..0)), Bars::default());
        assert_eq!(bins(&[]), 0..0);
    }
}
