//! When a rank stood out: which steps are held against it.
//!
//! Steps are judged in blocks. A block counts against a rank that was last in most of its steps by more than a
//! little; from the blocks that count the episode's ends are fitted, step by step, to where it began and ended.

use wire::live::Part;

use crate::replay::Replay;
use crate::stats;
use crate::step::StepAnalysis;

/// Steps judged together.
pub(super) const BLOCK: usize = 25;
/// Blocks that must agree before a rank is named.
pub(super) const LEAST_BLOCKS: usize = 2;
/// A rank that is last in this share of a block's steps is last by more than chance: with four equal ranks
/// the odds are 2 in 10,000 a block.
const LAST_SHARE: f64 = 0.6;
/// A block counts when fixing the rank would save this share of it.
const BLOCK_COST_SHARE: f64 = 0.05;
/// Ranks are blamed together when fixing all saves this many times what fixing the worst alone does.
const GROUP_GAIN: f32 = 1.5;
/// An episode goes on while the rank is last in all but one of the next so many steps.
const EDGE: usize = 5;

/// Who made a step long, and by how much.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    /// One rank, or those that are slow together, ascending.
    pub(super) ranks: Vec<usize>,
    /// What fixing them would save, in nanoseconds.
    pub(super) nanos: f64,
}

impl Claim {
    pub(super) fn of(step: &StepAnalysis) -> Option<Self> {
        match step.replay.as_ref().filter(|replay| replay.is_trusted()) {
            Some(replay) => Self::by_replay(replay),
            None => Self::by_own_work(step),
        }
    }

    fn by_replay(replay: &Replay) -> Option<Self> {
        let (rank, &saving) = replay.ranks.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
        let group = replay.group.as_ref().filter(|group| group.saving_nanos > GROUP_GAIN * saving.max(0.0));
        let (mut ranks, nanos) = match group {
            Some(group) => (group.ranks.iter().map(|&rank| rank as usize).collect(), group.saving_nanos),
            None => (vec![rank], saving),
        };
        ranks.sort_unstable();
        Some(Self { ranks, nanos: f64::from(nanos.max(0.0)) })
    }

    /// Where a step cannot be replayed: what the longest own work exceeds the next one's by.
    fn by_own_work(step: &StepAnalysis) -> Option<Self> {
        let transfers = step.present().map(|(_, rank)| rank.part(Part::ExposedTransfer) as f64);
        let usual = stats::median(transfers)? as u64;
        // Transfers that take longer than the median rank's are a rank's own trouble too.
        let own = step.present().map(|(rank, analysis)| {
            (analysis.own_nanos() + analysis.part(Part::ExposedTransfer).saturating_sub(usual), rank)
        });
        let mut own: Vec<(u64, usize)> = own.collect();
        own.sort_unstable_by(|a, b| b.cmp(a));
        let &(longest, rank) = own.first()?;
        let second = own.get(1).map_or(0, |&(second, _)| second);
        Some(Self { ranks: vec![rank], nanos: (longest - second) as f64 })
    }
}

/// What fixing `ranks` saves in a step, in nanoseconds.
pub(super) fn saving(claim: &Option<Claim>, ranks: &[usize]) -> f64 {
    claim.as_ref().filter(|claim| claim.ranks == ranks).map_or(0.0, |claim| claim.nanos)
}

/// The indices of the steps that are held against `ranks`, ascending; `None` when too few blocks count.
pub(super) fn bad_steps(
    steps: &[&StepAnalysis],
    claims: &[Option<Claim>],
    ranks: &[usize],
) -> Option<Vec<usize>> {
    let guilty: Vec<(usize, usize)> = blocks(steps.len())
        .filter(|&(from, to)| {
            let savings = claims[from..to].iter().map(|claim| saving(claim, ranks));
            let (last_in, saved) = savings.fold((0_usize, 0.0), |(last_in, sum), saved| {
                (last_in + usize::from(saved > 0.0), sum + saved)
            });
            let total: u64 = steps[from..to].iter().map(|step| step.period_nanos()).sum();
            last_in as f64 >= LAST_SHARE * (to - from) as f64 && saved >= BLOCK_COST_SHARE * total as f64
        })
        .collect();
    if guilty.len() < LEAST_BLOCKS {
        return None;
    }
    let mut is_bad = vec![false; steps.len()];
    for episode in guilty.chunk_by(|before, after| before.1 == after.0) {
        let (from, to) = fitted(claims, ranks, episode[0].0, episode[episode.len() - 1].1);
        is_bad[from..to].fill(true);
    }
    Some((0..steps.len()).filter(|&at| is_bad[at]).collect())
}

/// Cuts `steps` into blocks of [`BLOCK`] or a little more, so that none is left over.
fn blocks(steps: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = (steps / BLOCK).max(1);
    (0..count).map(move |block| (block * steps / count, (block + 1) * steps / count))
}

/// Moves the ends of an episode, which lie on block boundaries, to where it truly began and ended: inwards over
/// steps in which the rank was not yet, or no longer, last; else outwards over those in which it was already.
fn fitted(claims: &[Option<Claim>], ranks: &[usize], mut from: usize, mut to: usize) -> (usize, usize) {
    let goes_on = |window: &[Option<Claim>]| {
        let last_in = window.iter().filter(|claim| saving(claim, ranks) > 0.0).count();
        window.len() == EDGE && last_in + 1 >= EDGE
    };
    while to - from > BLOCK && !goes_on(&claims[from..from + EDGE]) {
        from += 1;
    }
    while to - from > BLOCK && !goes_on(&claims[to - EDGE..to]) {
        to -= 1;
    }
    while from > 0 && goes_on(&claims[from.saturating_sub(EDGE)..from]) {
        from -= 1;
    }
    while to < claims.len() && goes_on(&claims[to..claims.len().min(to + EDGE)]) {
        to += 1;
    }
    (from, to)
}
