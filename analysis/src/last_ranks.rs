//! Which ranks start collectives last, how often and by how much, whether that costs anything or not.

use std::cmp::Reverse;

use wire::ids::Rank;
use wire::views::LastRank;

use crate::step::StepAnalysis;

/// The largest number of ranks that are listed.
const MOST: usize = 16;

/// How often a rank starts a collective last, by how much in all, and at most, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Delays {
    times: u64,
    total: u64,
    longest: u64,
}

/// Returns the ranks that start collectives last in `steps`, the one that is latest in all first.
pub(crate) fn last_ranks(steps: &[&StepAnalysis]) -> Vec<LastRank> {
    let ranks = steps.iter().map(|step| step.ranks.len()).max().unwrap_or(0);
    let mut delays = vec![Delays::default(); ranks];
    let (mut collectives, mut all) = (0, 0);
    for collective in steps.iter().flat_map(|step| &step.collectives) {
        let Some((rank, nanos)) = collective.culprit.zip(collective.last_by_nanos) else { continue };
        let Some(own) = delays.get_mut(rank) else { continue };
        *own = Delays { times: own.times + 1, total: own.total + nanos, longest: nanos.max(own.longest) };
        (collectives, all) = (collectives + 1, all + nanos);
    }
    let last = |(rank, Delays { times, total, longest }): (usize, Delays)| LastRank {
        rank: Rank(rank as u32),
        last: times,
        collectives,
        nanos_per_step: total as f64 / steps.len() as f64,
        longest_nanos: longest,
        share: total as f64 / all as f64,
    };
    let mut delays: Vec<(usize, Delays)> =
        delays.into_iter().enumerate().filter(|(_, delays)| delays.total > 0).collect();
    delays.sort_by_key(|&(rank, delays)| (Reverse((delays.total, delays.times)), rank));
    delays.into_iter().take(MOST).map(last).collect()
}
