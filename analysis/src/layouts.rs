//! Which parameters the buckets of a report hold.
//!
//! A module's layout says the sizes of its buckets, in the order in which they are reduced. A step may have other
//! collectives before, between and after those of a module. So a module's buckets are those whose sizes follow each other as
//! in its layout.

use std::ops::Range;

use wire::event::Function;
use wire::layout::Layout;
use wire::views::{BucketParameters, BucketStats};

use crate::finding::{Evidence, Finding};

/// Adds the parameters to buckets, which must be in the order of their groups and numbers. `layouts` has the layouts of each
/// module, the oldest first.
pub(crate) fn name(buckets: &mut [BucketStats], layouts: &[impl AsRef<Layout>]) {
    let mut places: Vec<(Range<usize>, &Layout)> = Vec::new();
    let layouts: Vec<&Layout> = layouts.iter().map(AsRef::as_ref).collect();
    for of_module in layouts.chunk_by(|a, b| a.module == b.module) {
        // The newest layout that the steps of the report have.
        let found = of_module.iter().rev().find_map(|&layout| Some((layout, places_of(buckets, layout)?)));
        places
            .extend(found.into_iter().flat_map(|(layout, all)| all.into_iter().map(move |at| (at, layout))));
    }
    for (at, layout) in &places {
        let overlaps = |(other, _): &&(Range<usize>, &Layout)| other.start < at.end && at.start < other.end;
        // Two modules of the same sizes cannot be told apart.
        if places.iter().filter(overlaps).count() == 1 {
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
        found.windows(2).all(follow)
            && found
                .iter()
                .zip(&layout.buckets)
                .all(|(stats, bucket)| stats.function == Function::AllReduce && stats.bytes == bucket.bytes)
    };
    let last = buckets.len().checked_sub(length).filter(|_| length > 0)?;
    let places: Vec<Range<usize>> = (0..=last).map(|at| at..at + length).filter(is_layout).collect();
    let is_clear = places.windows(2).all(|two| two[0].end <= two[1].start);
    (is_clear && !places.is_empty()).then_some(places)
}

/// Adds to the evidence what is in the bucket that it speaks of.
pub(crate) fn explain(finding: &mut Finding, buckets: &[BucketStats]) {
    for evidence in &mut finding.evidence {
        if let Evidence::Tail { last, .. } = evidence {
            let largest = buckets.first().map(|bucket| bucket.group);
            let of_largest = buckets.iter().filter(|bucket| Some(bucket.group) == largest);
            *last = of_largest.max_by_key(|bucket| bucket.bucket).and_then(|last| last.parameters.clone());
        }
    }
}
