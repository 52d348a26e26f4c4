//! Which ranks start collectives last, how often and by how much, whether that costs anything or not.

use std::cmp::Reverse;

use wire::ids::Rank;
use wire::views::LastRank;

use crate::step::StepAnalysis;

/// The largest number of ranks that are listed.
const MOST: usize = 16;

/// Returns the ranks that start collectives last in `steps`, the one that is latest in all first.
pub(crate) fn last_ranks(steps: &[&StepAnalysis]) -> Vec<LastRank> {
    let ranks = steps.iter().map(|step| step.ranks.len()).max().unwrap_or(0);
    // How often, by how much in all, and at most, in nanoseconds.
    let mut of = vec![(0_u64, 0_u64, 0_u64); ranks];
    let (mut collectives, mut all) = (0, 0);
    for one in steps.iter().flat_map(|step| &step.collectives) {
        let Some((rank, nanos)) = one.culprit.zip(one.last_by_nanos) else { continue };
        let Some((times, total, longest)) = of.get_mut(rank) else { continue };
        (*times, *total, *longest) = (*times + 1, *total + nanos, nanos.max(*longest));
        (collectives, all) = (collectives + 1, all + nanos);
    }
    let last = |(rank, (times, total, longest)): (usize, (u64, u64, u64))| LastRank {
        rank: Rank(rank as u32),
        last: times,
        collectives,
        nanos_per_step: total as f64 / steps.len() as f64,
        longest_nanos: longest,
        share: total as f64 / all as f64,
    };
    let mut of: Vec<(usize, (u64, u64, u64))> =
        of.into_iter().enumerate().filter(|(_, (_, total, _))| *total > 0).collect();
    of.sort_by_key(|&(rank, (times, total, _))| (Reverse((total, times)), rank));
    of.into_iter().take(MOST).map(last).collect()
}
