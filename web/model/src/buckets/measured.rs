//! What the ranks do in a measured range of a step.

use viz::span::Span;
use wire::live::{SliceKind, Waterfall};

/// Returns the time that a rank spends in each kind of slice within `range`, in nanoseconds, as a mean over all ranks.
/// Kinds that do not occur are left out; the longest comes first.
#[must_use]
pub fn totals(waterfall: &Waterfall, range: Span) -> Vec<(SliceKind, f64)> {
    let mut sums = SliceKind::ALL.map(|kind| (kind, 0.0));
    for at in 0..waterfall.slice_row.len() {
        let overlap = waterfall.slice_end[at].min(range.end) - waterfall.slice_begin[at].max(range.start);
        sums[usize::from(waterfall.slice_kind[at])].1 += overlap.max(0.0);
    }
    let ranks = waterfall.rank.len().max(1) as f64;
    let mut totals: Vec<(SliceKind, f64)> = sums
        .into_iter()
        .filter(|(_, nanos)| *nanos > 0.0)
        .map(|(kind, nanos)| (kind, nanos / ranks))
        .collect();
    totals.sort_by(|a, b| b.1.total_cmp(&a.1));
    totals
}

#[cfg(test)]
mod tests {
    use super::super::fixture::started_at;
    use super::*;

    #[test]
    fn a_range_holds_the_parts_of_slices_that_lie_in_it() {
        let waterfall = started_at(&[10.0, 40.0]);
        let totals = |from, to| totals(&waterfall, Span::new(from, to));
        assert_eq!(totals(0.0, 100.0), [(SliceKind::Backward, 25.0), (SliceKind::WaitExposed, 15.0)]);
        assert_eq!(totals(20.0, 30.0), [(SliceKind::Backward, 5.0), (SliceKind::WaitExposed, 5.0)]);
        assert_eq!(totals(50.0, 60.0), []);
    }
}
