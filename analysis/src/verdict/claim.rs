//! Whom a step is held against: what fixing one rank, or some ranks together, would save in it.

use wire::live::Part;

use crate::replay::Replay;
use crate::stats;
use crate::step::StepAnalysis;

/// Ranks are blamed together when fixing all of them saves this many times what fixing the worst alone does.
const GROUP_GAIN: f32 = 1.5;

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
        match trusted(step) {
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
        let mut own = own_work(step)?;
        own.sort_unstable_by(|a, b| b.cmp(a));
        let &(longest, rank) = own.first()?;
        let second = own.get(1).map_or(0, |&(second, _)| second);
        Some(Self { ranks: vec![rank], nanos: (longest - second) as f64 })
    }

    /// What the claim holds against exactly these ranks, in nanoseconds; 0 when it is against others.
    pub(super) fn against(&self, ranks: &[usize]) -> f64 {
        if self.ranks == ranks { self.nanos } else { 0.0 }
    }
}

/// What fixing `ranks` would save in a step, in nanoseconds: negative where a single rank is ahead of the others.
pub(super) fn saving(step: &StepAnalysis, claim: Option<&Claim>, ranks: &[usize]) -> f64 {
    let signed = match (ranks, trusted(step)) {
        ([rank], Some(replay)) => replay.ranks.get(*rank).map(|&nanos| f64::from(nanos)),
        ([rank], None) => ahead(step, *rank),
        _ => None,
    };
    signed.unwrap_or_else(|| claim.map_or(0.0, |claim| claim.against(ranks)))
}

fn trusted(step: &StepAnalysis) -> Option<&Replay> {
    step.replay.as_ref().filter(|replay| replay.is_trusted())
}

/// What the own work of `rank` exceeds the longest of the others by.
fn ahead(step: &StepAnalysis, rank: usize) -> Option<f64> {
    let own = own_work(step)?;
    let longest = |is_own: bool| {
        own.iter().filter(|(_, of)| (*of == rank) == is_own).map(|&(nanos, _)| nanos as f64).reduce(f64::max)
    };
    Some(longest(true)? - longest(false)?)
}

/// Each rank's own work in nanoseconds, with the rank. Transfers that take longer than the median rank's are a rank's
/// own trouble too.
fn own_work(step: &StepAnalysis) -> Option<Vec<(u64, usize)>> {
    let transfers = step.present().map(|(_, rank)| rank.part(Part::ExposedTransfer) as f64);
    let usual = stats::median(transfers)? as u64;
    let own = step.present().map(|(rank, analysis)| {
        (analysis.own_nanos() + analysis.part(Part::ExposedTransfer).saturating_sub(usual), rank)
    });
    Some(own.collect())
}
