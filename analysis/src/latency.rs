//! The distribution of the waits and transfers of a bucket.

use wire::views::LatencyHistogram;

/// Returns the histogram of waits and transfers, both in nanoseconds.
#[must_use]
pub fn histogram(
    waits: impl Iterator<Item = f64> + Clone,
    transfers: impl Iterator<Item = f64> + Clone,
) -> LatencyHistogram {
    let bins = waits.clone().chain(transfers.clone()).map(LatencyHistogram::bin);
    let Some((first, last)) = bins.fold(None, |range, bin| match range {
        None => Some((bin, bin)),
        Some((first, last)) => Some((bin.min(first), bin.max(last))),
    }) else {
        return LatencyHistogram::default();
    };
    let count = |values: &mut dyn Iterator<Item = f64>| {
        let mut counts = vec![0; (last - first + 1) as usize];
        values.for_each(|nanos| counts[(LatencyHistogram::bin(nanos) - first) as usize] += 1);
        counts
    };
    LatencyHistogram { first, transfers: count(&mut { transfers }), waits: count(&mut { waits }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_counted_in_its_bin() {
        let waits = [0.0, 999.0, 1_000.0];
        let transfers = [16_000.0, 16_001.0, 1e6];
        let histogram = histogram(waits.into_iter(), transfers.into_iter());
        assert_eq!(histogram.first, 0);
        assert_eq!(histogram.waits[0], 3);
        assert_eq!(histogram.transfers[16], 2, "16 us are four octaves above 1 us");
        assert_eq!(histogram.transfers.iter().sum::<u32>(), 3);
        let bin = LatencyHistogram::bin(1e6);
        assert!(LatencyHistogram::begin(bin) <= 1e6 && 1e6 < LatencyHistogram::begin(bin + 1));
    }
}
