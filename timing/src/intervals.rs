//! Sets of time intervals. Lengths are of unions, never sums, because two kernels at once are one busy moment.

/// A half-open interval of time, in nanoseconds of the caller's clock.
pub type Interval = (i64, i64);

/// A set of disjoint, non-empty intervals in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals(Vec<Interval>);

impl Intervals {
    /// Returns the union of `parts`, which may be in any order; empty and backward parts are ignored.
    #[must_use]
    pub fn union(parts: impl IntoIterator<Item = Interval>) -> Self {
        let mut sorted: Vec<Interval> = parts.into_iter().filter(|(begin, end)| begin < end).collect();
        sorted.sort_unstable();
        let mut merged: Vec<Interval> = Vec::with_capacity(sorted.len());
        for (begin, end) in sorted {
            match merged.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((begin, end)),
            }
        }
        Self(merged)
    }

    /// Returns the part of the set that lies in `[begin, end)`.
    #[must_use]
    pub fn clip(&self, (begin, end): Interval) -> Self {
        let clipped = self.0.iter().map(|&(b, e)| (b.max(begin), e.min(end)));
        Self(clipped.filter(|(b, e)| b < e).collect())
    }

    /// Returns the time that is in both sets.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut at, mut both) = (0, Vec::new());
        for &(begin, end) in &self.0 {
            while at < other.0.len() && other.0[at].1 <= begin {
                at += 1;
            }
            let overlapping = other.0[at..].iter().take_while(|(other_begin, _)| *other_begin < end);
            both.extend(overlapping.map(|&(b, e)| (b.max(begin), e.min(end))));
        }
        Self(both)
    }

    /// Returns the time that is in `self` and not in `other`.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        let (mut at, mut left) = (0, Vec::new());
        for &(begin, end) in &self.0 {
            while at < other.0.len() && other.0[at].1 <= begin {
                at += 1;
            }
            let mut begin_left = begin;
            for &(hole_begin, hole_end) in other.0[at..].iter().take_while(|hole| hole.0 < end) {
                if begin_left < hole_begin {
                    left.push((begin_left, hole_begin));
                }
                begin_left = begin_left.max(hole_end);
            }
            if begin_left < end {
                left.push((begin_left, end));
            }
        }
        Self(left)
    }

    /// Returns the set with all gaps of at most `most` nanoseconds closed.
    #[must_use]
    pub fn with_gaps(&self, most: u64) -> Self {
        let mut closed: Vec<Interval> = Vec::with_capacity(self.0.len());
        for &(begin, end) in &self.0 {
            match closed.last_mut() {
                Some(last) if begin.abs_diff(last.1) <= most => last.1 = end,
                _ => closed.push((begin, end)),
            }
        }
        Self(closed)
    }

    /// Returns the length of each interval, in nanoseconds.
    pub fn lengths(&self) -> impl Iterator<Item = u64> + Clone {
        self.0.iter().map(|(begin, end)| (end - begin).unsigned_abs())
    }

    /// Returns, for each interval, the sum of the lengths before it, for [`Self::total_before`].
    #[must_use]
    pub fn sums(&self) -> Vec<u64> {
        let sum = |sum: &mut u64, length: u64| Some(std::mem::replace(sum, sum.saturating_add(length)));
        self.lengths().scan(0, sum).collect()
    }

    /// Returns the length of the set before `time`, in nanoseconds. `sums` must be [`Self::sums`] of this set. Each
    /// call takes time logarithmic in the number of intervals.
    #[must_use]
    pub fn total_before(&self, sums: &[u64], time: i64) -> u64 {
        let past = self.0.partition_point(|&(begin, _)| begin < time);
        let Some(last) = past.checked_sub(1) else { return 0 };
        let (begin, end) = self.0[last];
        sums[last].saturating_add(end.min(time).abs_diff(begin))
    }

    /// Returns the length of the set within `[begin, end)`, in nanoseconds.
    #[must_use]
    pub fn total_within(&self, (begin, end): Interval) -> u64 {
        let first = self.0.partition_point(|&(_, e)| e <= begin);
        let overlapping = self.0[first..].iter().take_while(|&&(b, _)| b < end);
        overlapping.map(|&(b, e)| e.min(end).saturating_sub(b.max(begin)).max(0).unsigned_abs()).sum()
    }

    /// Returns the length of the set, in nanoseconds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(begin, end)| end.abs_diff(*begin)).sum()
    }

    /// Returns the intervals in ascending order.
    #[must_use]
    pub fn as_slice(&self) -> &[Interval] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_parts() -> impl Strategy<Value = Vec<Interval>> {
        prop::collection::vec((0_i64..60, -5_i64..20).prop_map(|(begin, len)| (begin, begin + len)), 0..12)
    }

    /// The set by its definition, one nanosecond at a time.
    fn members(parts: &[Interval]) -> Vec<bool> {
        (-10..100).map(|t| parts.iter().any(|&(begin, end)| begin <= t && t < end)).collect()
    }

    proptest! {
        #[test]
        fn set_operations_agree_with_counting(a in any_parts(), b in any_parts(), clip in (0_i64..60, 0_i64..60)) {
            let (ua, ub) = (Intervals::union(a.clone()), Intervals::union(b.clone()));
            let (ma, mb) = (members(&a), members(&b));
            let both = |f: fn(bool, bool) -> bool| -> Vec<bool> {
                ma.iter().zip(&mb).map(|(&x, &y)| f(x, y)).collect()
            };
            prop_assert_eq!(members(ua.as_slice()), ma.clone());
            prop_assert_eq!(members(ua.intersect(&ub).as_slice()), both(|x, y| x && y));
            prop_assert_eq!(members(ua.subtract(&ub).as_slice()), both(|x, y| x && !y));
            prop_assert_eq!(ua.clip(clip), ua.intersect(&Intervals::union([clip])));
            prop_assert_eq!(ua.total_within(clip), ua.clip(clip).total());
            let gaps = ua.as_slice().windows(2).map(|pair| (pair[0].1, pair[1].0));
            let short = gaps.filter(|(begin, end)| end - begin <= 3);
            prop_assert_eq!(ua.with_gaps(3), Intervals::union(ua.as_slice().iter().copied().chain(short)));
            prop_assert_eq!(ua.total(), ma.iter().filter(|&&x| x).count() as u64);
        }
    }
}
