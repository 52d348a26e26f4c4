//! The cost of recording, measured with shadow steps: steps of which only the length is recorded.

use wire::views::OwnOverhead;

use crate::stats;

/// The length of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepLength {
    pub step: u64,
    pub nanos: u64,
    pub is_shadow: bool,
}

/// Computes the overhead from steps in their order, by comparing each shadow step with each of
/// its two observed neighbors. Returns `None` with fewer than six shadow steps between observed ones, too few for a 95
/// % interval.
///
/// The neighbors are compared one by one, not by their mean. Step times have a long tail on one side, and the mean of
/// two draws from such a distribution lies above a single draw more often than not, which would show an overhead that
/// does not exist.
///
/// The interval is that of the sign test for a median: the order statistics at (n -+ 1.96 sqrt n) / 2. The n is the
/// number of shadow steps, because the two ratios of one shadow step are not independent.
#[must_use]
pub fn own_overhead(steps: &[StepLength]) -> Option<OwnOverhead> {
    let is_between = |neighbors: &&[StepLength]| {
        let [before, shadow, after] = neighbors else { return false };
        let are_kinds = shadow.is_shadow && !before.is_shadow && !after.is_shadow;
        are_kinds && before.step + 1 == shadow.step && shadow.step + 1 == after.step && shadow.nanos > 0
    };
    let ratio = |observed: u64, shadow: u64| observed as f64 / shadow as f64 - 1.0;
    let mut ratios: Vec<f64> = steps
        .windows(3)
        .filter(is_between)
        .flat_map(|neighbors| [0, 2].map(|at| ratio(neighbors[at].nanos, neighbors[1].nanos)))
        .collect();
    let pairs = ratios.len() / 2;
    if pairs < 6 {
        return None;
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let half_width = 1.96 * (pairs as f64).sqrt();
    let low_share = ((pairs as f64 - half_width) / 2.0).floor().max(0.0) / pairs as f64;
    let low = (low_share * ratios.len() as f64) as usize;
    Some(OwnOverhead {
        ratio: stats::quantile(&ratios, 0.5),
        low: ratios[low],
        high: ratios[ratios.len() - 1 - low],
        pairs: pairs as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One step in ten is a shadow step.
    fn length(step: u64, nanos: u64) -> StepLength {
        StepLength { step, nanos, is_shadow: step % 10 == 9 }
    }

    #[test]
    fn a_tenth_of_overhead_is_measured_as_a_tenth() {
        let steps: Vec<_> =
            (0..100).map(|step| length(step, if step % 10 == 9 { 1_000 } else { 1_100 })).collect();
        let overhead = own_overhead(&steps).unwrap();
        assert!((overhead.ratio - 0.1).abs() < 1e-12);
        assert_eq!(overhead.pairs, 9, "the last shadow step has no step after it");
        assert!(own_overhead(&steps[..40]).is_none());
    }

    /// Step times with a long tail, the same for shadow and observed steps: no overhead.
    #[test]
    fn a_long_tail_is_not_overhead() {
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
            (1_000_000.0 * (1.0 - uniform).powf(-0.5)) as u64
        };
        let steps: Vec<_> = (0..40_000).map(|step| length(step, draw())).collect();
        let overhead = own_overhead(&steps).unwrap();
        assert!(overhead.ratio.abs() < 0.02, "{overhead:?}");
        assert!(overhead.low < 0.0 && overhead.high > 0.0, "{overhead:?}");
    }
}
