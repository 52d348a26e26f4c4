//! What recording costs, from shadow steps: steps of which nothing but the length was recorded.

use wire::views::OwnOverhead;

use crate::stats;

/// From `(step, nanoseconds, shadow)` in step order: each shadow step against the mean of its two observed
/// neighbours. `None` with fewer than six pairs, too few for a 95 % interval.
///
/// The interval is the sign test's for a median: order statistics at ranks (n -+ 1.96 sqrt n) / 2.
#[must_use]
pub fn own_overhead(steps: &[(u64, u64, bool)]) -> Option<OwnOverhead> {
    let is_pair = |w: &&[(u64, u64, bool)]| {
        w[1].2 && !w[0].2 && !w[2].2 && w[0].0 + 1 == w[1].0 && w[1].0 + 1 == w[2].0 && w[1].1 > 0
    };
    let mut ratios: Vec<f64> = steps
        .windows(3)
        .filter(is_pair)
        .map(|w| (w[0].1 as f64 + w[2].1 as f64) / 2.0 / w[1].1 as f64 - 1.0)
        .collect();
    let pairs = ratios.len();
    if pairs < 6 {
        return None;
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let half_width = 1.96 * (pairs as f64).sqrt();
    let low = ((pairs as f64 - half_width) / 2.0).floor().max(0.0) as usize;
    let ratio = stats::quantile(&ratios, 0.5);
    Some(OwnOverhead { ratio, low: ratios[low], high: ratios[pairs - 1 - low], pairs: pairs as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observed_steps_that_take_a_tenth_longer_show_as_a_tenth() {
        let steps: Vec<_> =
            (0..100_u64).map(|s| (s, if s % 10 == 9 { 1_000 } else { 1_100 }, s % 10 == 9)).collect();
        let overhead = own_overhead(&steps).unwrap();
        assert!((overhead.ratio - 0.1).abs() < 1e-12);
        assert_eq!(overhead.pairs, 9, "the last shadow step has no step after it");
        assert!(own_overhead(&steps[..40]).is_none());
    }
}
