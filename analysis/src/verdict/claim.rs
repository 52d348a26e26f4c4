//! Attributes each step to the rank, or the ranks together, whose fix would save the most in it.

use wire::live::Part;

use crate::replay::Replay;
use crate::stats;
use crate::step::StepAnalysis;

/// The factor by which fixing all ranks of a group must save more than fixing the worst rank alone for the group to be
/// named.
const GROUP_GAIN: f32 = 1.5;

/// The ranks that made a step long, and by how much.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    /// One rank, or the ranks that are slow together, in ascending order.
    pub(super) ranks: Vec<usize>,
    /// The saving from fixing these ranks, in nanoseconds.
    pub(super) nanos: f64,
}

impl Claim {
    pub(super) fn new(step: &StepAnalysis) -> Option<Self> {
        match trusted(step) {
            Some(replay) => Self::from_replay(replay),
            None => Self::from_own_work(step),
        }
    }

    fn from_replay(replay: &Replay) -> Option<Self> {
        let (rank, &saving) = replay.ranks.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
        let group = replay.group.as_ref().filter(|group| group.saving_nanos > GROUP_GAIN * saving.max(0.0));
        let (mut ranks, nanos) = match group {
            Some(group) => (group.ranks.iter().map(|&rank| rank as usize).collect(), group.saving_nanos),
            None => (vec![rank], saving),
        };
        ranks.sort_unstable();
        Some(Self { ranks, nanos: f64::from(nanos.max(0.0)) })
    }

    /// Claims the difference between the longest local work and the next longest, for steps that cannot be replayed.
    fn from_own_work(step: &StepAnalysis) -> Option<Self> {
        let mut own = own_work(step)?;
        own.sort_unstable_by(|a, b| b.cmp(a));
        let &(longest, rank) = own.first()?;
        let second = own.get(1).map_or(0, |&(second, _)| second);
        Some(Self { ranks: vec![rank], nanos: (longest - second) as f64 })
    }

    /// Returns what the claim attributes to exactly these ranks, in nanoseconds; 0 if it names other ranks.
    pub(super) fn nanos_against(&self, ranks: &[usize]) -> f64 {
        if self.ranks == ranks { self.nanos } else { 0.0 }
    }
}

/// Returns the saving from fixing `ranks` in a step, in nanoseconds; negative if a single rank is ahead of the others.
pub(super) fn saving(step: &StepAnalysis, claim: Option<&Claim>, ranks: &[usize]) -> f64 {
    let signed = match (ranks, trusted(step)) {
        ([rank], Some(replay)) => replay.ranks.get(*rank).map(|&nanos| f64::from(nanos)),
        ([rank], None) => ahead(step, *rank),
        _ => None,
    };
    signed.unwrap_or_else(|| claim.map_or(0.0, |claim| claim.nanos_against(ranks)))
}

/// Returns [`saving`] less what the pauses of `ranks` explain of it. Recorded pauses have findings of their own
/// ([`super::now_and_then`]).
pub(super) fn unpaused(step: &StepAnalysis, claim: Option<&Claim>, ranks: &[usize]) -> f64 {
    let saving = saving(step, claim, ranks);
    let paused = |named: bool| {
        let side = step.present().filter(|(rank, _)| ranks.contains(rank) == named);
        stats::mean(side.map(|(_, rank)| rank.part(Part::Pause) as f64)).unwrap_or(0.0)
    };
    let explained = (paused(true) - paused(false)).clamp(0.0, saving.max(0.0));
    saving - explained
}

fn trusted(step: &StepAnalysis) -> Option<&Replay> {
    step.replay.as_ref().filter(|replay| replay.is_trusted())
}

/// Returns the local work of `rank` less the longest local work of the other ranks, in nanoseconds.
fn ahead(step: &StepAnalysis, rank: usize) -> Option<f64> {
    let own = own_work(step)?;
    let longest = |is_own: bool| {
        own.iter()
            .filter(|(_, other)| (*other == rank) == is_own)
            .map(|&(nanos, _)| nanos as f64)
            .reduce(f64::max)
    };
    Some(longest(true)? - longest(false)?)
}

/// Returns each rank's local work in nanoseconds, with the rank. Transfers count as local work as far as they take
/// longer than the median rank's.
fn own_work(step: &StepAnalysis) -> Option<Vec<(u64, usize)>> {
    let transfers = step.present().map(|(_, rank)| rank.part(Part::ExposedTransfer) as f64);
    let usual = stats::median(transfers)? as u64;
    let own = step.present().map(|(rank, analysis)| {
        (analysis.own_nanos() + analysis.part(Part::ExposedTransfer).saturating_sub(usual), rank)
    });
    Some(own.collect())
}
