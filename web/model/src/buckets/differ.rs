//! The buckets up to which some ranks take longer than the others in one step.

use wire::live::Waterfall;

use crate::ranks::Difference;

/// A difference below this share of the step is not worth a row.
const SMALLEST: f64 = 0.01;
/// The largest number of buckets that are named.
const MOST: usize = 4;

/// Returns the buckets up to which the time differs, the largest difference first, in nanoseconds of this step. The time up
/// to a bucket is from the moment at which the bucket before it was ready to the one at which it is ready itself; up to the
/// first bucket, it is from the beginning of the step, with input and forward. `selected` are ranks.
#[must_use]
pub fn buckets_that_differ(waterfall: &Waterfall, selected: &[u32]) -> Vec<Difference> {
    let mut works: Vec<(u32, bool, f64)> = Vec::new();
    for (row, rank) in waterfall.rank.iter().enumerate() {
        let mut ready: Vec<(f64, u32)> = (0..waterfall.bucket.len())
            .filter(|&at| waterfall.bucket_row[at] as usize == row && !waterfall.bucket_ready[at].is_nan())
            .map(|at| (waterfall.bucket_ready[at], waterfall.bucket[at]))
            .collect();
        ready.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut previous = waterfall.rank_begin[row];
        for (at, bucket) in ready {
            works.push((bucket, selected.contains(rank), at - previous));
            previous = at;
        }
    }
    let mean = |bucket: u32, is_selected: bool| {
        let nanos: Vec<f64> = works
            .iter()
            .filter(|work| work.0 == bucket && work.1 == is_selected)
            .map(|work| work.2)
            .collect();
        (!nanos.is_empty()).then(|| nanos.iter().sum::<f64>() / nanos.len() as f64)
    };
    let mut buckets: Vec<u32> = works.iter().map(|work| work.0).collect();
    buckets.sort_unstable();
    buckets.dedup();
    let mut differences: Vec<Difference> = buckets
        .into_iter()
        .filter_map(|bucket| {
            let (selected, others) = (mean(bucket, true)?, mean(bucket, false)?);
            Some(Difference { name: format!("bucket {bucket}"), selected, others })
        })
        .filter(|found| (found.selected - found.others).abs() > waterfall.span_nanos * SMALLEST)
        .collect();
    let size = |found: &Difference| (found.selected - found.others).abs();
    differences.sort_by(|a, b| size(b).total_cmp(&size(a)));
    differences.truncate(MOST);
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A waterfall of two buckets: the ready times of both on each rank.
    fn step(ready: &[[f64; 2]]) -> Waterfall {
        let ranks = ready.len();
        Waterfall {
            span_nanos: 1_000.0,
            rank: (0..ranks as u32).collect(),
            rank_begin: vec![0.0; ranks],
            bucket_row: (0..ranks as u32).flat_map(|row| [row, row]).collect(),
            bucket: (0..ranks).flat_map(|_| [0, 1]).collect(),
            bucket_ready: ready.concat(),
            ..Waterfall::default()
        }
    }

    #[test]
    fn a_rank_that_works_longer_for_one_bucket_differs_in_that_bucket_alone() {
        let waterfall = step(&[[100.0, 200.0], [100.0, 350.0], [100.0, 200.0]]);
        let found = buckets_that_differ(&waterfall, &[1]);
        assert_eq!(found, [Difference { name: "bucket 1".into(), selected: 250.0, others: 100.0 }]);
        assert_eq!(buckets_that_differ(&waterfall, &[0]).len(), 1, "the others include the slow rank");
    }

    #[test]
    fn scatter_and_missing_ranks_are_no_difference() {
        let waterfall = step(&[[100.0, 200.0], [104.0, 206.0]]);
        assert_eq!(buckets_that_differ(&waterfall, &[1]), []);
        assert_eq!(buckets_that_differ(&waterfall, &[7]), []);
        assert_eq!(buckets_that_differ(&waterfall, &[0, 1]), [], "nothing to compare with");
    }
}
