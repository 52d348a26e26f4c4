//! The latency-bandwidth model: `transfer(m) = alpha + beta * m`, fitted by least absolute deviations.

use wire::views::AlphaBeta;

use crate::stats;

/// The largest number of points of which all pairs are tried: 2,016 lines, each against all points.
const MOST_PAIRED: usize = 64;

/// The steps of the search for the slope. Each leaves 0.62 of the interval, so these leave 10^-25 of it.
const SEARCH_STEPS: usize = 120;

/// A line: its value at 0, and its slope.
type Line = (f64, f64);

/// Fits the line to `(bytes, seconds)` points; returns `None` with fewer than two different sizes.
///
/// A least-absolute-deviations line passes through two of its points, so all pairs are tried if the points are few, as those
/// of buckets are. The collectives of other jobs may each have a size of their own: among many points the slope is searched.
/// Negative latency and negative bandwidth have no meaning: lines through the origin and level lines are tried in their
/// place.
#[must_use]
pub fn fit(points: &[(u64, f64)]) -> Option<AlphaBeta> {
    let first = points.first()?;
    if points.iter().all(|&(size, _)| size == first.0) {
        return None;
    }
    let (alpha, beta) = if points.len() <= MOST_PAIRED { paired(points) } else { searched(points) }?;
    let residual = stats::median(points.iter().map(|&(m, t)| (t - alpha - beta * m as f64).abs()))?;
    Some(AlphaBeta {
        alpha_seconds: alpha,
        beta_seconds_per_byte: beta,
        residual_seconds: residual,
        points: points.to_vec(),
    })
}

/// Returns the sum of the distances of the points from a line.
fn cost(points: &[(u64, f64)], (alpha, beta): Line) -> f64 {
    points.iter().map(|&(m, t)| (t - alpha - beta * m as f64).abs()).sum()
}

/// Returns the best line of those through two points, through the origin and one point, and level.
fn paired(points: &[(u64, f64)]) -> Option<Line> {
    let pairs = points.iter().enumerate().flat_map(|(i, a)| points[i + 1..].iter().map(move |b| (*a, *b)));
    let through_two = pairs.filter(|((ma, _), (mb, _))| ma != mb).map(|((ma, ta), (mb, tb))| {
        let beta = (tb - ta) / (mb as f64 - ma as f64);
        (ta - beta * ma as f64, beta)
    });
    let through_origin = points.iter().filter(|&&(m, _)| m > 0).map(|&(m, t)| (0.0, t / m as f64));
    let level = points.iter().map(|&(_, t)| (t, 0.0));
    through_two
        .chain(through_origin)
        .chain(level)
        .filter(|&(alpha, beta)| alpha >= 0.0 && beta >= 0.0)
        .min_by(|&a, &b| cost(points, a).total_cmp(&cost(points, b)))
}

struct Candidate {
    line: Line,
    cost: f64,
}

/// Returns the best line by golden-section search over its slope: the least cost of each slope is a convex function of it. A
/// line that is steeper than from the origin to every point can only be too steep.
fn searched(points: &[(u64, f64)]) -> Option<Line> {
    let steepest = points.iter().filter(|&&(m, _)| m > 0).map(|&(m, t)| t / m as f64).fold(0.0, f64::max);
    let with_slope = |beta: f64| {
        let alpha = stats::lower_median(points.iter().map(|&(m, t)| t - beta * m as f64))?.max(0.0);
        Some(Candidate { line: (alpha, beta), cost: cost(points, (alpha, beta)) })
    };
    let section = (5.0_f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (0.0, steepest);
    let mut best = with_slope(low)?;
    for _ in 0..SEARCH_STEPS {
        let (left, right) = (high - (high - low) * section, low + (high - low) * section);
        let (flatter, steeper) = (with_slope(left)?, with_slope(right)?);
        (low, high) = if flatter.cost <= steeper.cost { (low, right) } else { (left, high) };
        best = [best, flatter, steeper].into_iter().min_by(|a, b| a.cost.total_cmp(&b.cost))?;
    }
    Some(best.line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outlier_does_not_move_the_line() {
        let line = |m: u64| (m, 1e-4 + m as f64 * 2e-9);
        let mut points: Vec<_> = [1_000, 10_000, 100_000, 1_000_000].map(line).to_vec();
        points.push((50_000, 0.5));
        let fit = fit(&points).unwrap();
        assert!((fit.alpha_seconds - 1e-4).abs() < 1e-9, "{fit:?}");
        assert!((fit.beta_seconds_per_byte - 2e-9).abs() < 1e-14, "{fit:?}");
        assert!(super::fit(&[(4, 1.0), (4, 2.0)]).is_none());
    }

    #[test]
    fn latency_and_bandwidth_are_never_negative() {
        let fit = fit(&[(1_000, 2.0), (2_000, 1.0)]).unwrap();
        assert!(fit.alpha_seconds >= 0.0 && fit.beta_seconds_per_byte >= 0.0);
    }

    /// Returns points beside a line, with some far from it.
    fn noisy(count: u64) -> Vec<(u64, f64)> {
        let point = |at: u64| {
            let (m, noise) = (1_000 + at * 7_919 % 1_000_003, (at * 104_729 % 1_009) as f64 / 1_009.0);
            let outlier = if at.is_multiple_of(9) { 0.3 } else { 0.0 };
            (m, 1e-4 + m as f64 * 2e-9 + noise * 1e-4 + outlier)
        };
        (0..count).map(point).collect()
    }

    #[test]
    fn the_search_finds_the_line_that_trying_all_pairs_finds() {
        let level = |at: u64| (at, 1.0);
        let falling = |at: u64| (at, 100.0 - at as f64);
        let shapes = [
            noisy(60),
            (0..60).map(level).collect(),
            (0..60).map(falling).collect(),
            vec![(0, 1.0), (5, 2.0)],
        ];
        for points in shapes {
            let (by_pairs, by_search) = (paired(&points).unwrap(), searched(&points).unwrap());
            let (least, found) = (cost(&points, by_pairs), cost(&points, by_search));
            assert!((found - least).abs() <= 1e-9 * least.max(1e-3), "{by_search:?} instead of {by_pairs:?}");
            assert!(by_search.0 >= 0.0 && by_search.1 >= 0.0, "{by_search:?}");
        }
    }

    /// All pairs of these would take hours.
    #[test]
    fn thousands_of_sizes_are_fitted() {
        let fit = fit(&noisy(20_000)).unwrap();
        assert!((fit.beta_seconds_per_byte - 2e-9).abs() < 2e-10, "{}", fit.beta_seconds_per_byte);
    }
}
