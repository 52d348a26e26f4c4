//! How the slowest of several ranks grows with their number.

use crate::stats;

/// The numbers of the largest deviations that may make up the tail. The second one is the usual choice.
const TAILS: [usize; 3] = [3, 10, 30];
/// The number of the largest deviations that are kept one by one, and of groups of the others.
const KEPT: usize = 512;

/// The distribution of a rank's local work around its mean, in nanoseconds: the observed deviations, and in place of the
/// largest ones an exponential tail (peaks over threshold with shape 0; Pickands, 1975).
#[derive(Clone, Debug)]
pub(super) struct Deviations {
    descending: Vec<DeviationGroup>,
}

/// Deviations that are next to each other in their order.
#[derive(Clone, Copy, Debug)]
struct DeviationGroup {
    mean: f64,
    /// The share of all deviations that lie in this group and in those before it.
    share: f64,
}

impl Deviations {
    /// Takes the work of each rank in each step; the inner list has the steps of a rank.
    pub(super) fn new(ranks: &[Vec<f64>]) -> Self {
        let deviations = |works: &Vec<f64>| {
            let mean = stats::mean(works.iter().copied()).unwrap_or(0.0);
            works.iter().map(move |work| work - mean).collect::<Vec<_>>()
        };
        let mut all: Vec<f64> = ranks.iter().flat_map(deviations).collect();
        all.sort_by(|a, b| b.total_cmp(a));
        let (largest, others) = all.split_at(all.len().min(KEPT));
        let groups = others.chunks(others.len().div_ceil(KEPT).max(1));
        let mut taken = 0;
        let descending = largest.chunks(1).chain(groups).map(|group| {
            taken += group.len();
            let mean = group.iter().sum::<f64>() / group.len() as f64;
            DeviationGroup { mean, share: taken as f64 / all.len() as f64 }
        });
        Self { descending: descending.collect() }
    }

    /// Returns the expected maximum of so many draws, with an exponential tail in place of the `above` largest deviations.
    fn expected_maximum(&self, draws: u32, above: usize) -> f64 {
        let (tail, body) = self.descending.split_at(above.min(self.descending.len() / 2));
        let share = tail.last().map_or(0.0, |group| group.share);
        let threshold = body.first().map_or(0.0, |group| group.mean);
        let excess = stats::mean(tail.iter().map(|group| group.mean - threshold)).unwrap_or(0.0);
        // The probability that no draw is among the largest ones of this share.
        let none_in = |share: f64| (1.0 - share).max(0.0).powi(draws as i32);
        let mut none_larger = none_in(share);
        let body_maximum: f64 = body
            .iter()
            .map(|group| {
                let none = none_in(group.share);
                group.mean * (std::mem::replace(&mut none_larger, none) - none)
            })
            .sum();
        // The largest of m exponential draws is the m-th harmonic number on average, and m is binomial.
        let mut none = 1.0;
        let harmonic: f64 = (1..=draws)
            .map(|most| {
                none *= 1.0 - share;
                (1.0 - none) / f64::from(most)
            })
            .sum();
        body_maximum + threshold * (1.0 - none_in(share)) + excess * harmonic
    }

    /// Returns what unevenness that costs `nanos` on `from` ranks costs on `to` ranks, if it is proportional to the expected
    /// maximum.
    pub(super) fn grown(&self, nanos: f64, from: u32, to: u32) -> f64 {
        self.grown_with_tail(nanos, (from, to), TAILS[1]).0
    }

    /// Returns the most that such unevenness costs on `to` ranks: with the heaviest tail, and if all of the growth is exposed,
    /// whatever part of the unevenness was absorbed on `from` ranks.
    pub(super) fn grown_most(&self, nanos: f64, from: u32, to: u32) -> f64 {
        let most = TAILS.map(|above| {
            let (in_proportion, in_full) = self.grown_with_tail(nanos, (from, to), above);
            in_proportion.max(in_full)
        });
        most.into_iter().fold(0.0, f64::max)
    }

    /// Returns the cost on other ranks, in proportion to the expected maximum, and larger by all of its growth.
    fn grown_with_tail(&self, nanos: f64, ranks: (u32, u32), above: usize) -> (f64, f64) {
        let [from, to] = [ranks.0, ranks.1].map(|draws| self.expected_maximum(draws, above));
        let in_proportion = if from > 0.0 { nanos * (to / from).max(0.0) } else { nanos };
        (in_proportion, nanos + to - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::normal_quantile;

    /// Quantiles of a distribution, as two ranks that take turns.
    fn ranks(quantile: impl Fn(f64) -> f64) -> [Vec<f64>; 2] {
        [0, 1].map(|rank| {
            (0..2_000).map(|step| quantile((f64::from(2 * step + rank) + 0.5) / 4_000.0)).collect()
        })
    }

    #[test]
    fn the_largest_of_normal_draws_is_that_of_the_tables() {
        let normal = Deviations::new(&ranks(normal_quantile));
        assert!(normal.expected_maximum(1, 10).abs() < 1e-3, "{}", normal.expected_maximum(1, 10));
        // Exact values: 0.5642 for two draws, 1.0294 for four, 2.5076 for 100 (Harter, 1961), 3.2414 for 1,000.
        for (draws, exact, most) in
            [(2, 0.5642, 0.01), (4, 1.0294, 0.01), (100, 2.5076, 0.05), (1_000, 3.2414, 0.25)]
        {
            let found = normal.expected_maximum(draws, 10);
            assert!((found - exact).abs() < most, "{draws}: {found}, exactly {exact}");
        }
    }

    #[test]
    fn the_largest_of_exponential_draws_is_a_harmonic_number() {
        let exponential = Deviations::new(&ranks(|share| -(1.0 - share).ln()));
        for draws in [2_u32, 64, 1_024, 16_384] {
            let exact: f64 = (2..=draws).map(|n| 1.0 / f64::from(n)).sum();
            let found = exponential.expected_maximum(draws, 10);
            assert!((found / exact - 1.0).abs() < 0.03, "{draws}: {found}, exactly {exact}");
        }
    }

    #[test]
    fn even_ranks_stay_even() {
        let even = Deviations::new(&[vec![5.0; 100], vec![7.0; 100]]);
        for deviations in [even, Deviations::new(&[])] {
            assert_eq!(deviations.grown(3.0, 2, 1_024).to_bits(), 3.0_f64.to_bits());
            assert_eq!(deviations.grown_most(3.0, 2, 1_024).to_bits(), 3.0_f64.to_bits());
        }
    }
}
