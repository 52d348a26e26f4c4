//! The latency-bandwidth model: `transfer(m) = alpha + beta * m`, fitted by least absolute deviations.

use wire::views::AlphaBeta;

use crate::stats;

/// Fits the line to `(bytes, seconds)` points; returns `None` with fewer than two different sizes.
///
/// A least-absolute-deviations line passes through two of its points, so all pairs are tried; buckets have few sizes.
/// Negative latency and negative bandwidth have no meaning: lines through the origin and level lines are tried in their
/// place.
#[must_use]
pub fn fit(points: &[(u64, f64)]) -> Option<AlphaBeta> {
    let first = points.first()?;
    if points.iter().all(|point| point.0 == first.0) {
        return None;
    }
    let pairs = points.iter().enumerate().flat_map(|(i, a)| points[i + 1..].iter().map(move |b| (*a, *b)));
    let through_two = pairs.filter(|(a, b)| a.0 != b.0).map(|((ma, ta), (mb, tb))| {
        let beta = (tb - ta) / (mb as f64 - ma as f64);
        (ta - beta * ma as f64, beta)
    });
    let through_origin = points.iter().filter(|point| point.0 > 0).map(|&(m, t)| (0.0, t / m as f64));
    let level = points.iter().map(|&(_, t)| (t, 0.0));
    let cost = |(alpha, beta): (f64, f64)| -> f64 {
        points.iter().map(|&(m, t)| (t - alpha - beta * m as f64).abs()).sum()
    };
    let (alpha, beta) = through_two
        .chain(through_origin)
        .chain(level)
        .filter(|&(alpha, beta)| alpha >= 0.0 && beta >= 0.0)
        .min_by(|&a, &b| cost(a).total_cmp(&cost(b)))?;
    let residual = stats::median(points.iter().map(|&(m, t)| (t - alpha - beta * m as f64).abs()))?;
    Some(AlphaBeta {
        alpha_seconds: alpha,
        beta_seconds_per_byte: beta,
        residual_seconds: residual,
        points: points.to_vec(),
    })
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
}
