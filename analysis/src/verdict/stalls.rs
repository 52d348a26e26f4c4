//! Stalls: single steps in which one rank falls far behind, and too few in a row for an episode. A rank whose memory is short
//! stalls for as long as its pages take to be read again, and not in every step.

use std::ops::Range;

use wire::live::Part;

use super::claim::Claim;
use super::excess_frequency_z;
use crate::step::StepAnalysis;

/// The least saving of a stall, as a share of the usual step.
const STALL_SHARE: f64 = 0.5;
/// The least number of stalls that are not consecutive. Fewer may be chance.
const MIN_STALLS: usize = 5;
/// The length of a long stall, in usual steps. One that costs enough is named by itself: whose it was is not a question of chance.
const LONG: f64 = 10.0;

/// The savings from fixing the suspected ranks, in nanoseconds, and what they are compared with.
pub(super) struct Watched<'a> {
    pub(super) ranks: &'a [usize],
    pub(super) steps: &'a [&'a StepAnalysis],
    pub(super) savings: &'a [f64],
    pub(super) claims: &'a [Option<Claim>],
    /// Whether the step is outside every episode of these ranks.
    pub(super) is_healthy: &'a [bool],
    pub(super) usual_step: f64,
}

impl Watched<'_> {
    /// Returns the stalls of a single suspected rank as ranges of indices if they cost at least `least` nanoseconds together. Either the rank
    /// stalls so much more often than the others that chance does not explain it, with a z score of at least `beyond_chance`, or
    /// only its long stalls are returned.
    pub(super) fn stalls(&self, least: f64, beyond_chance: f64) -> Vec<Range<usize>> {
        let &[rank] = self.ranks else { return Vec::new() };
        let (own, others) = (self.own(rank, STALL_SHARE), self.count_others(rank));
        let ranks = self.steps.first().map_or(1, |step| step.ranks.len());
        let z = excess_frequency_z(own.len(), own.len() + others, ranks);
        if own.len() >= MIN_STALLS && z >= beyond_chance && self.cost(&own) >= least {
            return own;
        }
        let long = self.own(rank, LONG);
        if !long.is_empty() && self.cost(&long) >= least { long } else { Vec::new() }
    }

    /// Returns the stalls of the rank that are at least as long as a number of usual steps.
    fn own(&self, rank: usize, length: f64) -> Vec<Range<usize>> {
        let is_own = |at: usize| self.claims[at].as_ref().is_some_and(|claim| claim.ranks == [rank]);
        let is_stall = |at: usize| self.is_stall(at, self.savings[at], rank, length);
        runs(self.savings.len(), |at| is_own(at) && is_stall(at))
    }

    /// Returns the number of stalls of other single ranks.
    fn count_others(&self, suspect: usize) -> usize {
        let is_stall = |at: usize| {
            let claim = self.claims[at].as_ref();
            claim.is_some_and(|claim| match claim.ranks[..] {
                [rank] => rank != suspect && self.is_stall(at, claim.nanos, rank, STALL_SHARE),
                _ => false,
            })
        };
        runs(self.savings.len(), is_stall).len()
    }

    fn is_stall(&self, at: usize, saving: f64, rank: usize, length: f64) -> bool {
        // A recorded pause, such as a checkpoint that one rank writes, is not a stall. The savings of the suspect are without them.
        let analysis = self.steps[at].ranks.get(rank).and_then(Option::as_ref);
        let paused = match self.ranks == [rank] {
            true => 0.0,
            false => analysis.map_or(0, |rank| rank.part(Part::Pause)) as f64,
        };
        self.is_healthy[at] && saving - paused >= length * self.usual_step
    }

    fn cost(&self, stalls: &[Range<usize>]) -> f64 {
        stalls.iter().cloned().flatten().map(|at| self.savings[at]).sum()
    }
}

/// Returns the ranges of consecutive indices below `count` for which `is` holds.
fn runs(count: usize, is: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in (0..count).filter(|&at| is(at)) {
        match runs.last_mut() {
            Some(last) if last.end == at => last.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}
