//! Order statistics. None of them skips missing values: pass only values that exist.

use statrs::distribution::{ContinuousCDF as _, Normal};
use statrs::function::factorial::ln_binomial;
use wire::views::Spread;

/// Returns the value below which the share `q` of `sorted` lies, by linear interpolation between neighbors (Hyndman and
/// Fan 1996, type 7). `sorted` must be ascending and not empty.
#[must_use]
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let sorted = sorted(values);
    (!sorted.is_empty()).then(|| quantile(&sorted, 0.5))
}

/// Returns the median, or the lower of the two middle values of an even number: of two ranks, the faster one. Returns
/// `None` for no values.
#[must_use]
pub fn lower_median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// Returns the item whose `value` is the median, or the upper one of the two in the middle. Returns `None` for no items.
#[must_use]
pub fn middle<T>(items: impl IntoIterator<Item = T>, value: impl Fn(&T) -> f64) -> Option<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    items.sort_by(|a, b| value(a).total_cmp(&value(b)));
    let at = items.len() / 2;
    items.into_iter().nth(at)
}

#[must_use]
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0_u64);
    for value in values {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / count as f64)
}

/// Returns median, tails and mean, or `None` for no values.
#[must_use]
pub fn spread(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
    let sorted = sorted(values);
    let mean = mean(sorted.iter().copied())?;
    let q = |share| quantile(&sorted, share);
    Some(Spread { median: q(0.5), p10: q(0.1), p90: q(0.9), p95: q(0.95), p99: q(0.99), mean })
}

/// Returns the mean without the lowest and the highest `share` of the values.
#[must_use]
pub fn trimmed_mean(values: impl IntoIterator<Item = f64>, share: f64) -> Option<f64> {
    let sorted = sorted(values);
    let cut = (sorted.len() as f64 * share) as usize;
    mean(sorted[cut..sorted.len() - cut].iter().copied())
}

/// Returns the standard deviation of the population, or `None` for no values.
#[must_use]
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values.iter().copied())?;
    Some(self::mean(values.iter().map(|value| (value - mean).powi(2)))?.sqrt())
}

/// Returns the value below which the share `p` of a standard normal distribution lies, for 0 < p < 1.
#[must_use]
pub fn normal_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

/// Returns the natural logarithm of the number of ways to choose `k` of `n`; 0 if there is one way, or none.
#[must_use]
pub fn ln_choose(n: usize, k: usize) -> f64 {
    if k > n { 0.0 } else { ln_binomial(n as u64, k as u64) }
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics_of_known_values_are_exact() {
        let values = || (1..=5).map(f64::from);
        assert_eq!(median(values()), Some(3.0));
        assert_eq!(median([1.0, 2.0]), Some(1.5));
        assert_eq!(median([]), None);
        assert_eq!(
            (lower_median([3.0, 1.0]), lower_median(values()), lower_median([])),
            (Some(1.0), Some(3.0), None)
        );
        assert_eq!((middle([3.0, 1.0], |x| *x), middle(values(), |x| -x)), (Some(3.0), Some(3.0)));
        assert_eq!(middle([], |x: &f64| *x), None);
        let spread = spread(values()).unwrap();
        assert_eq!((spread.p10, spread.p90, spread.mean), (1.4, 4.6, 3.0));
        assert_eq!(trimmed_mean([100.0, 1.0, 2.0, 3.0, -90.0], 0.2), Some(2.0));
        assert_eq!(deviation(&[1.0, 3.0]), Some(1.0));
        for (p, x) in [(0.5, 0.0), (0.975, 1.959_96), (0.001, -3.090_23)] {
            assert!((normal_quantile(p) - x).abs() < 5e-6, "{p}");
        }
    }

    #[test]
    fn ln_choose_matches_known_binomials() {
        assert!((ln_choose(8, 2) - 28_f64.ln()).abs() < 1e-12);
        assert!((ln_choose(16, 11) - 4_368_f64.ln()).abs() < 1e-12);
        for (n, k) in [(5, 5), (0, 0), (3, 7)] {
            assert!(ln_choose(n, k).abs() < 1e-12);
        }
    }
}
