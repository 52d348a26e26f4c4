//! Change-point detection: the most likely single change of a series' level, dated with an interval, and verified.
//!
//! The date is the split with the least squared error, which is the maximum likelihood for a change of the mean. The
//! interval holds the splits that are almost as likely. Whether there is a change at all is tested on the order of the
//! values (Mann and Whitney 1947), which single outliers hardly affect.

/// The least number of values on either side of a change.
const MIN_SIDE: usize = 5;
/// The largest difference in log-likelihood to the best split for a split to be in the interval: about 95 %.
const INTERVAL_LOG_LIKELIHOOD: f64 = 3.0;
/// The |z| beyond which the two sides differ. The split is chosen to make them differ most, out of about a hundred
/// nearly independent ones, so p < 0.001 overall requires 1e-5 of each.
const VERIFIED_Z: f64 = 4.42;
/// The number of standard deviations beyond the inner quantiles at which values are clipped: one long pause is not a
/// change of level.
const CLIP_DEVIATIONS: f64 = 4.0;

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The first index after the change.
    pub at: usize,
    /// The earliest index at which the change may lie.
    pub earliest: usize,
    /// The latest index at which the change may lie.
    pub latest: usize,
    /// The median before `at`.
    pub before: f64,
    /// The median from `at` on.
    pub after: f64,
    /// Whether the two sides differ by more than chance explains (p < 0.001).
    pub verified: bool,
}

/// Returns the most likely change in `values`; `None` if there are too few values or all are equal.
#[must_use]
pub fn change_point(values: &[f64]) -> Option<Change> {
    let count = values.len();
    if count < 2 * MIN_SIDE {
        return None;
    }
    let clipped = clip(values)?;
    let total: f64 = clipped.iter().sum();
    let mean = total / count as f64;
    let squares: f64 = clipped.iter().map(|value| (value - mean).powi(2)).sum();
    if squares <= 0.0 {
        return None;
    }
    let mut sum = clipped[..MIN_SIDE - 1].iter().sum::<f64>();
    let splits: Vec<(usize, f64)> = (MIN_SIDE..=count - MIN_SIDE)
        .map(|at| {
            sum += clipped[at - 1];
            let (n, k) = (count as f64, at as f64);
            let explained = (sum - k * mean).powi(2) * n / (k * (n - k));
            // A perfect split leaves no error; a billionth of the scatter takes its place.
            (at, (squares - explained).max(squares * 1e-9))
        })
        .collect();
    let &(at, least) = splits.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let is_likely = |left: f64| count as f64 / 2.0 * (left / least).ln() <= INTERVAL_LOG_LIKELIHOOD;
    let likely = || splits.iter().filter(|(_, left)| is_likely(*left)).map(|(at, _)| *at);
    let (before, after) = values.split_at(at);
    Some(Change {
        at,
        earliest: likely().min()?,
        latest: likely().max()?,
        before: crate::stats::median(before.iter().copied())?,
        after: crate::stats::median(after.iter().copied())?,
        verified: mann_whitney_z(before, after).abs() >= VERIFIED_Z,
    })
}

/// Returns the values with their tails clipped. The scatter is estimated from differences of neighbors, so the change
/// itself does not count as scatter.
fn clip(values: &[f64]) -> Option<Vec<f64>> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let quantile = |share: f64| crate::stats::quantile(&sorted, share);
    let steps = crate::stats::median(values.windows(2).map(|pair| (pair[1] - pair[0]).abs()))?;
    // For normal scatter, the median |difference| of neighbors is 0.954 standard deviations.
    let deviation = steps / 0.954;
    let (low, high) =
        (quantile(0.1) - CLIP_DEVIATIONS * deviation, quantile(0.9) + CLIP_DEVIATIONS * deviation);
    Some(values.iter().map(|value| value.clamp(low, high)).collect())
}

/// Returns the normal approximation of the U statistic: positive if `b` is larger.
fn mann_whitney_z(a: &[f64], b: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> =
        a.iter().map(|&value| (value, false)).chain(b.iter().map(|&value| (value, true))).collect();
    all.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    let (mut ranks_of_b, mut seen) = (0.0, 0.0);
    for ties in all.chunk_by(|x, y| x.0 == y.0) {
        let rank = seen + (ties.len() as f64 + 1.0) / 2.0;
        ranks_of_b += rank * ties.iter().filter(|(_, is_b)| *is_b).count() as f64;
        seen += ties.len() as f64;
    }
    let (na, nb) = (a.len() as f64, b.len() as f64);
    let u = ranks_of_b - nb * (nb + 1.0) / 2.0;
    (u - na * nb / 2.0) / (na * nb * (na + nb + 1.0) / 12.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(at: usize) -> f64 {
        ((at * 7_919) % 101) as f64 / 101.0
    }

    #[test]
    fn a_change_is_dated_and_verified() {
        for at in [20, 57, 130] {
            let values: Vec<f64> = (0..150).map(|i| noise(i) + if i >= at { 1.0 } else { 0.0 }).collect();
            let change = change_point(&values).unwrap();
            assert!(change.at.abs_diff(at) <= 2, "{at}: {change:?}");
            assert!((change.earliest..=change.latest).contains(&at), "{at}: {change:?}");
            assert!(change.verified && change.after - change.before > 0.8, "{change:?}");
        }
    }

    #[test]
    fn scatter_and_a_single_pause_are_not_a_change() {
        let mut values: Vec<f64> = (0..150).map(noise).collect();
        assert!(!change_point(&values).unwrap().verified);
        values[140] = 1e6;
        assert!(!change_point(&values).unwrap().verified);
        assert_eq!(change_point(&[1.0; 30]), None);
        assert_eq!(change_point(&values[..9]), None);
    }
}
