//! The ranks of a waterfall that are drawn. In a job of many ranks these are the late ones, the first, the median and the
//! pinned ones, and the others are folded.

use std::collections::BTreeSet;

use viz::raster::gantt::lateness;
use wire::live::Waterfall;

/// The largest number of ranks that are all drawn unless the user asks for fewer.
const FEW: usize = 8;
/// The largest number of late ranks.
const LATE: usize = 4;
/// How late a late rank is at least, as a share of how late the last one is. Both are against the median rank.
const LATE_SHARE: f64 = 0.25;

/// Which ranks are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// The late ones, the first one, the median and the pinned ones.
    Telling,
    /// All.
    All,
}

impl Rows {
    /// Both, as buttons show them.
    pub const ALL: [Self; 2] = [Self::Telling, Self::All];

    /// Returns the name in addresses.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Telling => "worst",
            Self::All => "all",
        }
    }

    /// Returns the choice with this key.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rows| rows.key() == key)
    }

    /// Returns the choice for a job of `ranks` ranks if the user has made none.
    #[must_use]
    pub fn usual(ranks: usize) -> Self {
        if ranks > FEW { Self::Telling } else { Self::All }
    }

    /// Returns the label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Telling => "Late, first, median, pinned",
            Self::All => "All ranks",
        }
    }
}

/// The reason why a rank is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It is among the last to start, and later than the others.
    Late,
    /// It is the first to start, and waits longest.
    First,
    /// As many ranks start before it as after it.
    Median,
    /// The user has pinned it or selected it.
    Pinned,
    /// Every rank is drawn.
    All,
}

impl Why {
    /// Returns the word beside the rank; empty if every rank is drawn.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::First => "first",
            Self::Median => "median",
            Self::Pinned => "pinned",
            Self::All => "",
        }
    }
}

/// Returns the rows of `waterfall` to draw, the latest first, and why.
///
/// Ranks are ordered by the sum of the starts of their collectives, as in the merged rows of the chart; by the end of
/// their step if there is no collective.
#[must_use]
pub fn chosen(waterfall: &Waterfall, rows: Rows, pinned: &[u32]) -> Vec<(usize, Why)> {
    let count = waterfall.rank.len();
    if rows == Rows::All {
        return (0..count).map(|row| (row, Why::All)).collect();
    }
    let lateness = lateness(waterfall);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| lateness[b].total_cmp(&lateness[a]).then(a.cmp(&b)));
    let median = order.get(count / 2).map(|&row| (row, Why::Median));
    let usual = median.map_or(0.0, |(row, _)| lateness[row]);
    let last = order.first().map_or(0.0, |&row| lateness[row]);
    let usual = usual + (last - usual) * LATE_SHARE;
    let late = order.iter().take(LATE).enumerate().filter(|&(at, &row)| at == 0 || lateness[row] > usual);
    let late = late.map(|(_, &row)| (row, Why::Late));
    let first = order.last().map(|&row| (row, Why::First));
    let is_pinned = |row: &usize| pinned.contains(&waterfall.rank[*row]);
    let pinned = (0..count).filter(is_pinned).map(|row| (row, Why::Pinned));
    // The first reason counts.
    let mut seen = BTreeSet::new();
    late.chain(first).chain(median).chain(pinned).filter(|(row, _)| seen.insert(*row)).collect()
}

/// Returns the waterfall of these rows alone, in this order.
#[must_use]
pub fn only(waterfall: &Waterfall, rows: &[usize]) -> Waterfall {
    let mut place = vec![None; waterfall.rank.len()];
    for (at, &row) in rows.iter().enumerate() {
        place[row] = Some(at as u32);
    }
    let kept = |column: &[u32]| -> Vec<usize> {
        (0..column.len()).filter(|&at| place[column[at] as usize].is_some()).collect()
    };
    let (buckets, slices) = (kept(&waterfall.bucket_row), kept(&waterfall.slice_row));
    let mut bucket_place = vec![u32::MAX; waterfall.bucket.len()];
    for (at, &bucket) in buckets.iter().enumerate() {
        bucket_place[bucket] = at as u32;
    }
    let moved = |column: &[u32], at: &[usize]| -> Vec<u32> {
        at.iter().filter_map(|&at| place[column[at] as usize]).collect()
    };
    let bucket_of = |&at: &usize| match waterfall.slice_bucket[at] {
        u32::MAX => u32::MAX,
        bucket => bucket_place[bucket as usize],
    };
    Waterfall {
        step: waterfall.step,
        origin_unix_nanos: waterfall.origin_unix_nanos,
        span_nanos: waterfall.span_nanos,
        only_enqueued: waterfall.only_enqueued,
        rank: picked(&waterfall.rank, rows),
        clock_bound: picked(&waterfall.clock_bound, rows),
        rank_begin: picked(&waterfall.rank_begin, rows),
        rank_end: picked(&waterfall.rank_end, rows),
        slice_row: moved(&waterfall.slice_row, &slices),
        slice_kind: picked(&waterfall.slice_kind, &slices),
        slice_bucket: slices.iter().map(bucket_of).collect(),
        slice_begin: picked(&waterfall.slice_begin, &slices),
        slice_end: picked(&waterfall.slice_end, &slices),
        bucket_row: moved(&waterfall.bucket_row, &buckets),
        bucket: picked(&waterfall.bucket, &buckets),
        bucket_seq: picked(&waterfall.bucket_seq, &buckets),
        bucket_function: picked(&waterfall.bucket_function, &buckets),
        bucket_comm: picked(&waterfall.bucket_comm, &buckets),
        bucket_bytes: picked(&waterfall.bucket_bytes, &buckets),
        bucket_ready: picked(&waterfall.bucket_ready, &buckets),
        bucket_launch: picked(&waterfall.bucket_launch, &buckets),
        bucket_start: picked(&waterfall.bucket_start, &buckets),
        bucket_end: picked(&waterfall.bucket_end, &buckets),
        bucket_wait: picked(&waterfall.bucket_wait, &buckets),
        bucket_wait_clock_free: picked(&waterfall.bucket_wait_clock_free, &buckets),
    }
}

fn picked<T: Copy>(column: &[T], places: &[usize]) -> Vec<T> {
    places.iter().map(|&place| column[place]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::started_at;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn many_ranks_fold_to_the_late_the_first_the_median_and_the_pinned() {
        let starts: Vec<f64> = (0..100).map(|rank| f64::from(rank % 50)).collect();
        let waterfall = started_at(&starts);
        let chosen = chosen(&waterfall, Rows::Telling, &[7, 99]);
        let late = [49, 99, 48, 98].map(|row| (row, Why::Late));
        let rest = [(50, Why::First), (24, Why::Median), (7, Why::Pinned)];
        assert_eq!(chosen, [&late[..], &rest].concat());
    }

    #[test]
    fn ranks_that_start_together_are_not_late() {
        let mut starts = vec![10.0; 100];
        starts[61] = 40.0;
        let chosen = chosen(&started_at(&starts), Rows::Telling, &[]);
        assert_eq!(
            chosen.iter().filter(|(_, why)| *why == Why::Late).collect::<Vec<_>>(),
            [&(61, Why::Late)]
        );
        assert_eq!(chosen[0].0, 61);
    }

    #[test]
    fn all_ranks_are_drawn_on_request_and_by_default_if_they_are_few() {
        let waterfall = started_at(&[1.0, 2.0]);
        assert_eq!(chosen(&waterfall, Rows::All, &[]), [(0, Why::All), (1, Why::All)]);
        assert_eq!([8, 9].map(Rows::usual), [Rows::All, Rows::Telling]);
        assert!(Rows::ALL.iter().all(|rows| Rows::from_key(rows.key()) == Some(*rows)));
    }

    #[test]
    fn without_collectives_the_end_of_the_step_decides() {
        let mut waterfall =
            Waterfall { rank: (0..12).collect(), rank_end: vec![5.0; 12], ..Waterfall::default() };
        waterfall.rank_end[9] = 120.0;
        let chosen = chosen(&waterfall, Rows::Telling, &[]);
        assert!(chosen.contains(&(9, Why::Late)), "{chosen:?}");
    }

    proptest! {
        #[test]
        fn a_part_of_a_waterfall_keeps_each_slice_of_its_ranks(
            starts in prop::collection::vec(0.0..100.0f64, 1..20),
            kept in prop::collection::vec(any::<bool>(), 20),
        ) {
            let waterfall = started_at(&starts);
            let rows: Vec<usize> = (0..starts.len()).filter(|&row| kept[row]).collect();
            let part = only(&waterfall, &rows);
            prop_assert!(part.is_consistent());
            prop_assert_eq!(part.slice_row.len(), rows.len() * 2);
            for at in 0..part.slice_row.len() {
                let rank = part.rank[part.slice_row[at] as usize] as usize;
                let begins = if part.slice_bucket[at] == u32::MAX { 0.0 } else { starts[rank] };
                prop_assert!((part.slice_begin[at] - begins).abs() < 1e-9);
            }
            for (at, &row) in part.bucket_row.iter().enumerate() {
                prop_assert!((part.bucket_start[at] - starts[part.rank[row as usize] as usize]).abs() < 1e-9);
            }
        }
    }
}
