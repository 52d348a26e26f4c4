//! What is in the last bucket, whose end ranks wait for.

use wire::views::BucketStats;

use crate::finding::{Evidence, Finding};

/// Adds its parameters to evidence that speaks of it.
pub(super) fn explain(finding: &mut Finding, buckets: &[BucketStats]) {
    for evidence in &mut finding.evidence {
        if let Evidence::Tail { last, .. } = evidence {
            let largest = buckets.first().map(|bucket| bucket.group);
            let reducing = buckets.iter().filter(|bucket| Some(bucket.group) == largest);
            *last = reducing.max_by_key(|bucket| bucket.bucket).and_then(|last| last.parameters.clone());
        }
    }
}
