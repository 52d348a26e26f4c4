//! Which parameters the buckets of a report hold.
//!
//! A module's layout says the sizes of its buckets, in the order in which they are reduced. A step may have other
//! collectives before, between and after those of a module. So a module's buckets are those whose sizes follow each other as
//! in its layout.

use std::ops::Range;

use wire::event::Function;
use wire::layout::Layout;
use wire::views::{BucketParameters, BucketStats};

/// Adds the parameters to buckets, which must be in the order of their groups and numbers. `layouts` has the layouts of each
/// module, the oldest first.
pub(crate) fn name(buckets: &mut [BucketStats], layouts: &[impl AsRef<Layout>]) {
    let mut places: Vec<(Range<usize>, &Layout)> = Vec::new();
    let layouts: Vec<&Layout> = layouts.iter().map(AsRef::as_ref).collect();
    for module in layouts.chunk_by(|a, b| a.module == b.module) {
        // The newest layout that the steps of the report have.
        let found = module.iter().rev().find_map(|&layout| Some((layout, places_of(buckets, layout)?)));
        places
            .extend(found.into_iter().flat_map(|(layout, all)| all.into_iter().map(move |at| (at, layout))));
    }
    let mut taken = vec![0_u32; buckets.len()];
    places.iter().flat_map(|(at, _)| at.clone()).for_each(|bucket| taken[bucket] += 1);
    for (at, layout) in &places {
        // Two modules of the same sizes cannot be told apart.
        if taken[at.clone()].iter().all(|&count| count == 1) {
            for (stats, place) in buckets[at.clone()].iter_mut().zip(0..) {
                stats.parameters = Some(parameters(layout, place));
            }
        }
    }
}

fn parameters(layout: &Layout, place: usize) -> BucketParameters {
    let bucket = &layout.buckets[place];
    BucketParameters {
        module: layout.module,
        generation: layout.generation,
        bucket: bucket.bucket.0,
        first: bucket.parameters.iter().take(BucketParameters::MAX_FIRST).cloned().collect(),
        count: bucket.parameters.len() as u32,
    }
}

/// Returns where the buckets of a layout are; `None` if they are nowhere, or if their places overlap.
fn places_of(buckets: &[BucketStats], layout: &Layout) -> Option<Vec<Range<usize>>> {
    let length = layout.buckets.len();
    let is_layout = |at: &Range<usize>| {
        let found = &buckets[at.clone()];
        let follow =
            |two: &[BucketStats]| two[0].group == two[1].group && two[0].bucket.0 + 1 == two[1].bucket.0;
        let mut pairs = found.iter().zip(&layout.buckets);
        // Sizes come first, because they differ soonest.
        pairs.all(|(stats, bucket)| stats.bytes == bucket.bytes && stats.function == Function::AllReduce)
            && found.windows(2).all(follow)
    };
    let last = buckets.len().checked_sub(length).filter(|_| length > 0)?;
    let places: Vec<Range<usize>> = (0..=last).map(|at| at..at + length).filter(is_layout).collect();
    let is_clear = places.windows(2).all(|two| two[0].end <= two[1].start);
    (is_clear && !places.is_empty()).then_some(places)
}

#[cfg(test)]
mod tests {
    use wire::ids::Bucket;
    use wire::layout::LayoutBucket;
    use wire::views::{Group, LatencyHistogram, Spread};

    use super::*;

    /// Returns the buckets of a step with collectives of these sizes.
    fn buckets(sizes: &[u64]) -> Vec<BucketStats> {
        let none = Spread { median: 0.0, p10: 0.0, p90: 0.0, p95: 0.0, p99: 0.0, mean: 0.0 };
        let bucket = |(at, &bytes): (usize, &u64)| BucketStats {
            group: Group { ranks: 2, stride: 1 },
            function: Function::AllReduce,
            bucket: Bucket(at as u32),
            bytes,
            collectives: 1,
            wait_nanos: none,
            transfer_nanos: none,
            latency: LatencyHistogram::default(),
            hidden_ratio: None,
            algbw: None,
            busbw: None,
            parameters: None,
        };
        sizes.iter().enumerate().map(bucket).collect()
    }

    fn layout(module: u32, generation: u32, sizes: &[u64]) -> Box<Layout> {
        let bucket = |(at, &bytes): (usize, &u64)| LayoutBucket {
            bucket: Bucket(at as u32),
            bytes,
            parameters: vec![format!("{module}.{at}")],
            ..LayoutBucket::default()
        };
        let buckets = sizes.iter().enumerate().map(bucket).collect();
        Box::new(Layout { module, generation, buckets, ..Layout::default() })
    }

    fn named(sizes: &[u64], layouts: &[Box<Layout>]) -> Vec<String> {
        let mut buckets = buckets(sizes);
        name(&mut buckets, layouts);
        let label = |stats: &BucketStats| stats.parameters.as_ref().map(BucketParameters::label);
        buckets.iter().map(|stats| label(stats).unwrap_or_else(|| "-".into())).collect()
    }

    #[test]
    fn a_modules_buckets_are_those_whose_sizes_follow_each_other_as_in_its_layout() {
        let module = [layout(0, 0, &[60]), layout(0, 1, &[10, 20, 30])];
        assert_eq!(named(&[10, 20, 30], &module), ["0.0", "0.1", "0.2"]);
        assert_eq!(named(&[8, 10, 20, 30, 8], &module), ["-", "0.0", "0.1", "0.2", "-"]);
        assert_eq!(named(&[60], &module), ["0.0"], "these steps are from before the rebuild");
        assert_eq!(named(&[10, 20], &module), ["-", "-"]);
        let two = [layout(0, 0, &[10, 20]), layout(1, 0, &[30])];
        assert_eq!(named(&[30, 10, 20], &two), ["1.0", "0.0", "0.1"]);
    }

    #[test]
    fn what_two_layouts_may_mean_is_not_named() {
        let alike = [layout(0, 0, &[10, 20]), layout(1, 0, &[10, 20])];
        assert_eq!(named(&[10, 20], &alike), ["-", "-"]);
        assert_eq!(named(&[10, 10, 10], &[layout(0, 0, &[10, 10])]), ["-", "-", "-"]);
    }
}
