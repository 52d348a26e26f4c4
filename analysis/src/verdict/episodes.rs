//! When a rank stood out: which steps are held against it.
//!
//! Steps are judged in blocks. A block counts against a rank that was last in most of its steps by more than a
//! little; from the blocks that count the episode's ends are fitted, step by step, to where it began and ended.

use wire::live::Part;

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
/// An episode goes on while the rank is last in all but one of the next so many steps.
const EDGE: usize = 5;

/// Who had the most own work in a step, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Margin {
    /// The rank.
    pub(super) rank: usize,
    /// What its own work exceeds the next one's by, in nanoseconds: what fixing it would save.
    pub(super) nanos: u64,
}

impl Margin {
    pub(super) fn of(step: &StepAnalysis) -> Option<Self> {
        let transfers = step.present().map(|(_, rank)| rank.part(Part::ExposedTransfer) as f64);
        let usual = stats::median(transfers)? as u64;
        let (mut longest, mut second) = ((usize::MAX, 0), 0);
        for (rank, analysis) in step.present() {
            // Transfers that take longer than the median rank's are this rank's own trouble too.
            let own = analysis.own_nanos() + analysis.part(Part::ExposedTransfer).saturating_sub(usual);
            if longest.0 == usize::MAX || own > longest.1 {
                second = longest.1;
                longest = (rank, own);
            } else {
                second = second.max(own);
            }
        }
        (longest.0 != usize::MAX).then_some(Self { rank: longest.0, nanos: longest.1 - second })
    }
}

/// What fixing `rank` saves in a step, in nanoseconds.
pub(super) fn saving(margin: &Option<Margin>, rank: usize) -> u64 {
    margin.filter(|margin| margin.rank == rank).map_or(0, |margin| margin.nanos)
}

/// The indices of the steps that are held against `rank`, ascending; `None` when too few blocks count.
pub(super) fn bad_steps(
    steps: &[&StepAnalysis],
    margins: &[Option<Margin>],
    rank: usize,
) -> Option<Vec<usize>> {
    let guilty: Vec<(usize, usize)> = blocks(steps.len())
        .filter(|&(from, to)| {
            let savings = margins[from..to].iter().map(|margin| saving(margin, rank));
            let (last_in, saved) = savings.fold((0_usize, 0_u64), |(last_in, sum), saved| {
                (last_in + usize::from(saved > 0), sum + saved)
            });
            let total: u64 = steps[from..to].iter().map(|step| step.step_nanos()).sum();
            last_in as f64 >= LAST_SHARE * (to - from) as f64
                && saved as f64 >= BLOCK_COST_SHARE * total as f64
        })
        .collect();
    if guilty.len() < LEAST_BLOCKS {
        return None;
    }
    let mut is_bad = vec![false; steps.len()];
    for episode in guilty.chunk_by(|before, after| before.1 == after.0) {
        let (from, to) = fitted(margins, rank, episode[0].0, episode[episode.len() - 1].1);
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
fn fitted(margins: &[Option<Margin>], rank: usize, mut from: usize, mut to: usize) -> (usize, usize) {
    let goes_on = |window: &[Option<Margin>]| {
        let last_in = window.iter().filter(|margin| saving(margin, rank) > 0).count();
        window.len() == EDGE && last_in + 1 >= EDGE
    };
    while to - from > BLOCK && !goes_on(&margins[from..from + EDGE]) {
        from += 1;
    }
    while to - from > BLOCK && !goes_on(&margins[to - EDGE..to]) {
        to -= 1;
    }
    while from > 0 && goes_on(&margins[from.saturating_sub(EDGE)..from]) {
        from -= 1;
    }
    while to < margins.len() && goes_on(&margins[to..margins.len().min(to + EDGE)]) {
        to += 1;
    }
    (from, to)
}
