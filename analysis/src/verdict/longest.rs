//! The rank that computes longest of the ranks that do the same work, where collectives are among some of the ranks.
//!
//! In a pipeline, a rank may start its collectives late because it waits for a message of another stage, and the time that ranks
//! of other stages wait is not always recorded. Who is last therefore says little about whose delay it is. How long a rank
//! computes is its own: no wait is in it. It is compared only with ranks of one group that run the same collectives and
//! messages as this one, such as the data-parallel ranks of a stage. It rests on one assumption: these are given the same work.
//!
//! Chance is measured in [`super::chance`]. Each step is a new question: which rank of a group computes longest, and by how
//! much longer than the next one.

use wire::live::Part;

use super::alike::{Placed, alike, members};
use super::chance::{Delay, MAX_CHANCE, chance, scores};
use crate::step::{RankAnalysis, StepAnalysis};

/// A rank that computes longer than the others of its group, more often and by more than chance explains.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Longest {
    pub(super) rank: usize,
    /// By how much longer than the next one, in nanoseconds: the mean over its steps.
    pub(super) nanos: f64,
    /// The ranks of its group, in ascending order.
    pub(super) among: Vec<usize>,
    /// The number of steps in which it computes longest.
    pub(super) steps: usize,
    /// The probability of the same in a job in which all ranks of a group are equally often the longest.
    pub(super) chance: f64,
}

/// Finds the rank that computes longest of a group that does not have all ranks.
pub(super) fn longest(steps: &[&StepAnalysis]) -> Option<Longest> {
    let ranks = steps.iter().map(|step| step.ranks.len()).max()?;
    let groups = alike(steps.last()?);
    let found: Vec<Delay> =
        steps.iter().flat_map(|step| groups.iter().filter_map(|&placed| longest_of(step, placed))).collect();
    let scores = scores(&found, ranks);
    let rank = (0..ranks).max_by(|&a, &b| scores[a].total_cmp(&scores[b]))?;
    let chance = chance(&found, ranks, scores[rank]);
    let own: Vec<&Delay> = found.iter().filter(|delay| delay.rank == rank).collect();
    let (group, first) = own.first().map(|delay| (delay.group, delay.first))?;
    (chance <= MAX_CHANCE).then(|| Longest {
        rank,
        nanos: own.iter().map(|delay| delay.nanos).sum::<f64>() / own.len() as f64,
        among: members(group, first).collect(),
        steps: own.len(),
        chance,
    })
}

/// Returns the rank of a group that computes longest in a step, and by how much longer than the next one; `None` if a rank is
/// missing.
fn longest_of(step: &StepAnalysis, (group, first): Placed) -> Option<Delay> {
    let own = |rank: usize| Some((compute(step.ranks.get(rank)?.as_deref()?), rank));
    let mut own: Vec<(u64, usize)> = members(group, first).map(own).collect::<Option<_>>()?;
    own.sort_unstable_by(|a, b| b.cmp(a));
    let [(longest, rank), (next, _), ..] = own[..] else { return None };
    Some(Delay { rank, nanos: (longest - next) as f64, group, first })
}

fn compute(rank: &RankAnalysis) -> u64 {
    [Part::Forward, Part::Backward, Part::Optimizer].into_iter().map(|part| rank.part(part)).sum()
}

#[cfg(test)]
mod tests;
