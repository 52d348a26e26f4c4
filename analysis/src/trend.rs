//! Trends: whether a series rises all along, and how fast.
//!
//! The slope is the median of the slopes between all pairs of points (Theil 1950, Sen 1968), with the interval of Sen. Whether
//! there is a trend is tested on the order of the values (Mann 1945, Kendall 1975). Both hold for any distribution, and single
//! outliers hardly affect them. They do not hold for values that depend on the ones before, and step times do: the cores of a
//! shared machine are slow for seconds. Three things guard against that:
//!
//! 1. The points are medians of blocks, so that what lasts a few steps is in one point.
//! 2. The series must rise in each third of it. A change of level is in one third, and growth that levels off is not in the last.
//! 3. The variance is that of autocorrelated values: (1 + r) / (1 - r) times as large, for the correlation r of what the line leaves
//!    of neighbors (Yue and Wang 2004).

use std::cmp::Ordering;

use crate::stats;

/// The number of blocks: eight in each third. Fewer in random order pass [`MIN_TAU`] more often than in 3 % of cases.
const BLOCKS: usize = 24;
/// The least number of values in a block. Fewer have no median that a single outlier leaves alone.
const MIN_BLOCK: usize = 4;
/// The number of parts that must all rise.
const PARTS: usize = 3;
/// The least of Kendall's tau in each part.
const MIN_TAU: f64 = 0.5;
/// The least of Kendall's tau over all blocks. A step and a dent in noise stay below it.
const MIN_TAU_OF_ALL: f64 = 0.8;
/// The least slope in each part, as a share of the slope over all: growth that levels off ends with less.
const MIN_PART_SLOPE: f64 = 0.1;
/// The largest correlation of neighbors that counts: the variance is infinite at 1.
const MAX_CORRELATION: f64 = 0.9;
/// The quantile of the interval: 95 %.
const INTERVAL_Z: f64 = 1.96;

/// A series that rises all along.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trend {
    /// The growth per unit of the place.
    pub(crate) slope: f64,
    /// The 95 % interval of the slope.
    pub(crate) slope_range: (f64, f64),
    /// The median of the first block.
    pub(crate) from: f64,
    /// The median of the last block.
    pub(crate) to: f64,
    /// The mean of the blocks less the first one.
    pub(crate) mean_rise: f64,
}

/// The least number of points that can have a trend.
pub(crate) const MIN_POINTS: usize = BLOCKS * MIN_BLOCK;

/// Returns the trend of points, which are (place, value) in ascending order of places; `None` if they do not rise all along, or if
/// there are fewer than [`MIN_POINTS`].
pub(crate) fn rising(points: &[(f64, f64)]) -> Option<Trend> {
    (points.len() >= MIN_POINTS).then(|| fitted(points))?
}

/// Returns the trend of points without single outliers, such as sizes of memory; `None` as for [`rising`], or if there are fewer
/// points than blocks.
pub(crate) fn rising_levels(points: &[(f64, f64)]) -> Option<Trend> {
    (points.len() >= BLOCKS).then(|| fitted(points))?
}

fn fitted(points: &[(f64, f64)]) -> Option<Trend> {
    let blocks = blocks(points)?;
    let slopes = slopes(&blocks);
    let slope = stats::quantile(&slopes, 0.5);
    let rises = |part: &[(f64, f64)]| {
        let own = stats::quantile(&self::slopes(part), 0.5);
        tau(part) >= MIN_TAU && own >= MIN_PART_SLOPE * slope
    };
    if slope <= 0.0 || tau(&blocks) < MIN_TAU_OF_ALL || !blocks.chunks(BLOCKS / PARTS).all(rises) {
        return None;
    }
    let slope_range = interval(&slopes, &blocks, slope);
    let (first, last) = (blocks.first()?.1, blocks.last()?.1);
    let mean_rise = stats::mean(blocks.iter().map(|block| block.1 - first))?.max(0.0);
    (slope_range.0 > 0.0 && last > first).then_some(Trend {
        slope,
        slope_range,
        from: first,
        to: last,
        mean_rise,
    })
}

/// Returns the medians of blocks of equally many points.
fn blocks(points: &[(f64, f64)]) -> Option<Vec<(f64, f64)>> {
    let count = points.len();
    let block = |points: &[(f64, f64)]| {
        let median = |value: fn(&(f64, f64)) -> f64| stats::median(points.iter().map(value));
        Some((median(|point| point.0)?, median(|point| point.1)?))
    };
    (0..BLOCKS).map(|at| block(&points[at * count / BLOCKS..(at + 1) * count / BLOCKS])).collect()
}

/// Returns the slopes between all pairs of points, ascending.
fn slopes(points: &[(f64, f64)]) -> Vec<f64> {
    let slope = |(a, b): (&(f64, f64), &(f64, f64))| (b.1 - a.1) / (b.0 - a.0);
    let mut slopes: Vec<f64> = pairs(points).filter(|(a, b)| b.0 > a.0).map(slope).collect();
    slopes.sort_unstable_by(f64::total_cmp);
    if slopes.is_empty() { vec![0.0] } else { slopes }
}

fn pairs<T>(points: &[T]) -> impl Iterator<Item = (&T, &T)> {
    points.iter().enumerate().flat_map(|(at, a)| points[at + 1..].iter().map(move |b| (a, b)))
}

/// Returns Kendall's tau between places and values: 1 if each value is larger than the one before, about 0 in random order. Pairs of
/// equal values count as neither.
fn tau(points: &[(f64, f64)]) -> f64 {
    let (sum, count) = pairs(points).fold((0.0, 0.0), |(sum, count), (a, b)| {
        let sign = match b.1.total_cmp(&a.1) {
            Ordering::Less => -1.0,
            Ordering::Equal => 0.0,
            Ordering::Greater => 1.0,
        };
        (sum + sign, count + 1.0)
    });
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Returns the interval of the slope: those between the slopes that are as many from the middle as Kendall's S deviates by chance.
fn interval(slopes: &[f64], points: &[(f64, f64)], slope: f64) -> (f64, f64) {
    let count = points.len() as f64;
    let variance = count * (count - 1.0) * (2.0 * count + 5.0) / 18.0 * inflation(points, slope);
    let half_width = INTERVAL_Z * variance.sqrt() / 2.0 / slopes.len() as f64;
    (stats::quantile(slopes, 0.5 - half_width), stats::quantile(slopes, 0.5 + half_width))
}

/// Returns by how much more the order of the points varies because neighbors are alike.
fn inflation(points: &[(f64, f64)], slope: f64) -> f64 {
    let rest: Vec<f64> = points.iter().map(|point| point.1 - slope * point.0).collect();
    let mean = stats::mean(rest.iter().copied()).unwrap_or(0.0);
    let products =
        |lag: usize| rest.iter().zip(&rest[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let squares = products(0);
    let correlation = if squares > 0.0 { products(1) / squares } else { 0.0 };
    let correlation = correlation.clamp(0.0, MAX_CORRELATION);
    (1.0 + correlation) / (1.0 - correlation)
}

#[cfg(test)]
mod tests;
