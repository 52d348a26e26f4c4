//! One measure of one rank over time, as it is read outside the hub.

use std::sync::Arc;

use wire::clock::ServerNanos;
use wire::usage::Usage;

use super::SAMPLE_NANOS;
use super::packed::Packed;

/// One measure of one rank over time, still compressed.
#[derive(Debug)]
pub struct MeasureHistory {
    pub(super) usage: Usage,
    pub(super) means: Vec<Arc<Packed>>,
    pub(super) newest_means: Vec<(i64, f32)>,
    pub(super) mean_nanos: i64,
    pub(super) fine: Vec<Arc<Packed>>,
    pub(super) newest: Vec<(i64, f32)>,
}

impl MeasureHistory {
    /// Decompresses the values.
    #[must_use]
    pub fn values(&self) -> Values {
        let column = |packed: &Arc<Packed>| packed.column(self.usage);
        let mut points: Vec<(i64, f32)> = self.means.iter().flat_map(column).collect();
        points.extend(&self.newest_means);
        let means = points.len();
        points.extend(self.fine.iter().flat_map(column));
        points.extend(&self.newest);
        Values { points, means, mean_nanos: self.mean_nanos }
    }
}

/// One measure of one rank over time.
#[derive(Clone, Debug)]
pub struct Values {
    /// The end of each interval on the server's clock, in nanoseconds, and the value over it; NaN if it is not known.
    pub(super) points: Vec<(i64, f32)>,
    /// The number of means before the single samples.
    means: usize,
    mean_nanos: i64,
}

impl Values {
    /// Returns the value over a window: the mean of the samples that ended in it, or else the sample that covers its end, or
    /// else the newest one if it is no older than a sample lasts. NaN if there is none.
    #[must_use]
    pub fn value_within(&self, (begin, end): (ServerNanos, ServerNanos)) -> f32 {
        let (begin, end) = (begin.0, end.0);
        let first = self.points.partition_point(|(at, _)| *at <= begin);
        let end_index = self.points.partition_point(|(at, _)| *at <= end);
        let mean = || {
            let known = (first..end_index).filter(|point| !self.points[*point].1.is_nan());
            let (sum, length) = known.fold((0.0, 0.0), |(sum, length), point| {
                let weight = self.length(point);
                (sum + weight * f64::from(self.points[point].1), length + weight)
            });
            (length > 0.0).then(|| (sum / length) as f32)
        };
        let covering = || {
            let (at, value) = self.points.get(end_index)?;
            (at.saturating_sub(end) < self.covered(end_index)).then_some(*value)
        };
        let newest = || {
            let (at, value) = self.points.last().filter(|_| end_index == self.points.len())?;
            (begin.saturating_sub(*at) < SAMPLE_NANOS).then_some(*value)
        };
        mean().or_else(covering).or_else(newest).unwrap_or(f32::NAN)
    }

    /// Returns each interval: its end on the server's clock, in nanoseconds, its length in seconds, and the value over it; NaN
    /// if it is not known.
    pub fn samples(&self) -> impl Iterator<Item = (i64, f64, f32)> + '_ {
        self.points.iter().enumerate().map(|(at, &(end, value))| (end, self.length(at) / 1e9, value))
    }

    /// Returns the time that a point covers, in nanoseconds.
    fn length(&self, point: usize) -> f64 {
        let previous = point.checked_sub(1).map_or(i64::MIN, |previous| self.points[previous].0);
        self.points[point].0.saturating_sub(previous).clamp(1, self.covered(point)) as f64
    }

    /// Returns the longest time that a point covers, in nanoseconds.
    fn covered(&self, point: usize) -> i64 {
        if point < self.means { self.mean_nanos + SAMPLE_NANOS } else { SAMPLE_NANOS }
    }
}
