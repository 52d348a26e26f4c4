//! What the ends of collectives say of clocks.
//!
//! A collective whose ranks wait for each other ends at one moment on all of them, whoever came last. Its ends therefore place the
//! clocks without its starts, which hold the lateness that the clocks are to show. No rank is the reference: a collective ends at the
//! mean of what its ranks say, so that another order of the ranks gives the same clocks.

use timing::clocks::AlignedCollective;

use super::Clock;

/// By how much the end of a collective on a device may differ from the moment at which it ends for all, for no reason of the job, in
/// nanoseconds. In recorded jobs, devices of one host end a collective up to some tens of microseconds apart, always in the same order.
pub(crate) const APART_NANOS: u64 = 25_000;
/// The number of collectives of a rank from which their scatter says how well their ends agree. Of fewer, the shortest duration does:
/// no rank ends later than that after the last one came.
const ENOUGH: usize = 3;
/// How often clocks are placed by the moments at which collectives end, and these by the clocks. Once is enough if all collectives
/// are among all ranks.
const ROUNDS: usize = 4;
/// The share of the collectives of a rank whose ends lie within its error.
const WITHIN: f64 = 0.9;
/// A collective counts if its ends lie at most this many times as far apart as in the median collective. Others are matched wrongly, or
/// a clock was set meanwhile.
const FAR: i64 = 8;

/// An end of a collective on a rank.
#[derive(Clone, Copy)]
struct End {
    rank: usize,
    at: i64,
}

/// A collective of several clocks.
struct Ended {
    ends: Vec<End>,
    shortest: u64,
}

impl Ended {
    fn new(collective: &AlignedCollective) -> Option<Self> {
        let shortest =
            collective.iter().map(|(_, start, end)| (*end - *start).max(0).unsigned_abs()).min()?;
        let ends = collective.iter().map(|&(rank, _, end)| End { rank, at: end.0 }).collect();
        (collective.len() > 1).then_some(Self { ends, shortest })
    }

    /// Returns when the collective ends for all; `None` if a clock is not placed.
    fn moment(&self, offsets: &[Option<i64>]) -> Option<i64> {
        let (first, others) = self.ends.split_first()?;
        let at = |end: &End| Some(end.at.saturating_add(offsets[end.rank]?));
        let first = at(first)?;
        // Relative to one of them, so that the sum fits.
        let differences = others.iter().map(|end| Some(i128::from(at(end)?) - i128::from(first)));
        let sum: i128 = differences.sum::<Option<i128>>()?;
        Some(first.saturating_add((sum / self.ends.len() as i128) as i64))
    }

    /// Returns by how much each rank ends after that moment.
    fn deviations(&self, offsets: &[Option<i64>]) -> Option<Vec<(usize, i64)>> {
        let moment = self.moment(offsets)?;
        let deviation =
            |end: &End| Some((end.rank, end.at.saturating_add(offsets[end.rank]?).saturating_sub(moment)));
        self.ends.iter().map(deviation).collect()
    }
}

/// Places the clocks of ranks by the ends of collectives. The clock of a rank that shares none with the first one is `None`.
pub(super) fn place(collectives: &[AlignedCollective], ranks: usize) -> Vec<Option<Clock>> {
    let all: Vec<Ended> = collectives.iter().filter_map(Ended::new).collect();
    let mut offsets = begun(&all, ranks);
    settle(&all.iter().collect::<Vec<_>>(), &mut offsets);
    let agreeing = agreeing(&all, &offsets);
    settle(&agreeing, &mut offsets);
    let first = offsets.first().copied().flatten().unwrap_or(0);
    let errors = errors(&agreeing, &offsets);
    let clock = |(offset, error): (Option<i64>, Option<u64>)| {
        Some(Clock { offset: offset?.saturating_sub(first), bound: error? })
    };
    offsets.into_iter().zip(errors).map(clock).collect()
}

/// Returns first offsets: from the first rank to those that share a collective with it, and on from these.
fn begun(all: &[Ended], ranks: usize) -> Vec<Option<i64>> {
    let mut offsets = vec![None; ranks];
    if let Some(first) = offsets.first_mut() {
        *first = Some(0);
    }
    loop {
        let mut found: Vec<Vec<i64>> = vec![Vec::new(); ranks];
        for ended in all {
            let placed = ended.ends.iter().find_map(|end| Some(end.at.saturating_add(offsets[end.rank]?)));
            let Some(placed) = placed else { continue };
            for end in ended.ends.iter().filter(|end| offsets[end.rank].is_none()) {
                found[end.rank].push(placed.saturating_sub(end.at));
            }
        }
        let mut is_done = true;
        for (offset, mut found) in offsets.iter_mut().zip(found) {
            if let Some(middle) = middle(&mut found) {
                (*offset, is_done) = (Some(middle), false);
            }
        }
        if is_done {
            return offsets;
        }
    }
}

/// Brings the ends of each rank to the moments at which collectives end, in the median.
fn settle(ended: &[&Ended], offsets: &mut [Option<i64>]) {
    for _ in 0..ROUNDS {
        let mut deviations = deviations_by_rank(ended, offsets);
        for (offset, deviations) in offsets.iter_mut().zip(&mut deviations) {
            *offset = offset.map(|offset| offset.saturating_sub(middle(deviations).unwrap_or(0)));
        }
    }
}

/// Returns by how much each rank ends after all, in each of its collectives.
fn deviations_by_rank(ended: &[&Ended], offsets: &[Option<i64>]) -> Vec<Vec<i64>> {
    let mut by_rank: Vec<Vec<i64>> = vec![Vec::new(); offsets.len()];
    for (rank, deviation) in ended.iter().filter_map(|ended| ended.deviations(offsets)).flatten() {
        by_rank[rank].push(deviation);
    }
    by_rank
}

/// Returns the collectives whose ends lie about as close as those of the others.
fn agreeing<'a>(all: &'a [Ended], offsets: &[Option<i64>]) -> Vec<&'a Ended> {
    let apart = |ended: &Ended| {
        let deviations = ended.deviations(offsets)?;
        let (_, last) = deviations.iter().max_by_key(|(_, deviation)| *deviation)?;
        let (_, first) = deviations.iter().min_by_key(|(_, deviation)| *deviation)?;
        Some(last.saturating_sub(*first))
    };
    let apart: Vec<Option<i64>> = all.iter().map(apart).collect();
    let usual = middle(&mut apart.iter().copied().flatten().collect::<Vec<_>>()).unwrap_or(0);
    let most = usual.max(APART_NANOS as i64).saturating_mul(FAR);
    let agrees =
        |(ended, apart): (&'a Ended, &Option<i64>)| apart.is_some_and(|apart| apart <= most).then_some(ended);
    all.iter().zip(&apart).filter_map(agrees).collect()
}

/// Returns the error of each clock; `None` if no collective says it.
fn errors(ended: &[&Ended], offsets: &[Option<i64>]) -> Vec<Option<u64>> {
    let mut shortest = vec![u64::MAX; offsets.len()];
    for collective in ended {
        for end in &collective.ends {
            shortest[end.rank] = shortest[end.rank].min(collective.shortest);
        }
    }
    let error = |(deviations, shortest): (Vec<i64>, u64)| {
        let mut deviations: Vec<u64> = deviations.into_iter().map(i64::unsigned_abs).collect();
        deviations.sort_unstable();
        let rank_within = deviations.len().checked_sub(1)? as f64 * WITHIN;
        let scatter = deviations[rank_within.ceil() as usize].max(APART_NANOS);
        Some(if deviations.len() < ENOUGH { scatter.max(shortest) } else { scatter })
    };
    deviations_by_rank(ended, offsets).into_iter().zip(shortest).map(error).collect()
}

/// Returns the median, halfway between the middle two of an even number.
fn middle(values: &mut [i64]) -> Option<i64> {
    values.sort_unstable();
    let high = *values.get(values.len() / 2)?;
    let low = values[(values.len() - 1) / 2];
    Some(low.saturating_add(high.saturating_sub(low) / 2))
}
