//! Verdicts on recorded jobs of few steps, such as a trace of three steps: each collective says which rank was last.
//!
//! After a collective among all ranks, all of them go on at the same time. Who starts the next one last is therefore a new
//! question each time, and a rank that is last again and again, by much, is so for a reason. A rank is named if it is last more
//! than chance explains ([`super::chance`]), and if its fix saves enough.
//!
//! What all ranks lose alike has a verdict as well if its share is clear ([`super::everyone::clear`]).
//!
//! Where no collective is among all ranks, a rank of a group may be last because it waited for another group. Only its own compute
//! is then held against it ([`super::longest`]).

use wire::event::Function;
use wire::views::{Confidence, Culprit, Group, Missing, VerdictState};

use super::chance::{Delay, MAX_CHANCE, chance, scores};
use super::{Findings, MIN_STEPS, Setting, Suspicion, claim, everyone, is_notable};
use crate::cost::Cost;
use crate::finding::{Evidence, Finding, Statement};
use crate::replay::Replay;
use crate::stats;
use crate::step::StepAnalysis;
use claim::Claim;

/// The number of delays that decide whether a rank is late, the newest ones: their draws take some hundredths of a second.
const MOST_DELAYS: usize = 2_000;

/// The largest share of its lateness that a rank costs if most of it is said to cost nothing.
const HIDDEN: f64 = 0.5;

/// Judges the observed steps of a recorded job.
///
/// # Errors
/// Returns the reason why nothing is named.
pub(super) fn judge(steps: &[&StepAnalysis], setting: &Setting<'_>) -> Result<Findings, Missing> {
    let late = late_ranks(steps, setting);
    let shared = everyone::clear(steps, setting);
    if shared.is_empty() {
        return late;
    }
    let mut found = late.unwrap_or_default();
    found.verdicts.extend(shared);
    found.sort();
    Ok(found)
}

/// Judges single ranks.
///
/// # Errors
/// Returns the reason why no rank is named.
fn late_ranks(steps: &[&StepAnalysis], setting: &Setting<'_>) -> Result<Findings, Missing> {
    let ranks = steps.iter().map(|step| step.ranks.len()).max().unwrap_or(0);
    let delays = newest_delays(steps);
    let unclear = || Missing::FewCollectives { collectives: delays.len() as u64, steps: steps.len() as u64 };
    if ranks == 0 {
        return Err(Missing::NoObservedStep);
    }
    if ranks == 1 {
        return Ok(Findings::default());
    }
    if delays.is_empty() {
        let finding = everyone::longest_of_group(steps).ok_or_else(unclear)?;
        return Ok(Findings { verdicts: vec![finding], notes: Vec::new() });
    }
    let late = late(&delays, ranks);
    let mut found: Vec<Finding> = late.iter().filter_map(|late| accuse_late(steps, late, setting)).collect();
    if found.is_empty() {
        return Err(late.first().map_or_else(unclear, |late| late_at_no_cost(late, &delays)));
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.verdict.lost_nanos()));
    let (verdicts, notes) = found.into_iter().partition(|finding| is_notable(finding, steps, setting));
    Ok(Findings { verdicts, notes })
}

/// Adds what collectives say to the findings on a recorded job that has as many steps as a live run needs for a verdict. Single ranks
/// are named there by how many whole steps they cost, so that in a recording of some tens of steps none may be named that is last in
/// nearly all of them. A rank that is named here does not take turns with the others.
pub(super) fn complete(found: &mut Findings, steps: &[&StepAnalysis], setting: &Setting<'_>) {
    let names_ranks = |finding: &Finding| finding.verdict.culprit != Some(Culprit::All);
    if found.verdicts.iter().chain(&found.notes).any(names_ranks) || newest_delays(steps).is_empty() {
        return;
    }
    let Ok(late) = late_ranks(steps, setting) else { return };
    for (found, late) in [(&mut found.verdicts, late.verdicts), (&mut found.notes, late.notes)] {
        found.retain(|finding| !finding.is_of_turns());
        found.splice(0..0, late);
    }
}

/// A rank that is late more than chance explains.
struct Late {
    rank: usize,
    /// The number of collectives in which it is last.
    last: usize,
    /// The number of collectives in which it, or a rank that is not late more than it, is last.
    collectives: usize,
    chance: f64,
}

/// Returns the ranks that are late more than chance explains, the latest first. Once a rank is found, chance is that of the other
/// ranks in the other collectives.
fn late(delays: &[Delay], ranks: usize) -> Vec<Late> {
    let mut late = Vec::new();
    let mut others: Vec<usize> = (0..ranks).collect();
    while others.len() > 1 {
        let place = |rank: usize| others.iter().position(|&other| other == rank);
        let group = Group::from_ranks(0..others.len());
        let left = delays
            .iter()
            .filter_map(|delay| Some(Delay { rank: place(delay.rank)?, group, first: 0, ..*delay }));
        let left: Vec<Delay> = left.collect();
        let scores = scores(&left, others.len());
        let Some(worst) = (0..others.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])) else { break };
        let chance = if left.is_empty() { 1.0 } else { chance(&left, others.len(), scores[worst]) };
        if chance > MAX_CHANCE {
            break;
        }
        let last = left.iter().filter(|delay| delay.rank == worst).count();
        late.push(Late { rank: others.remove(worst), last, collectives: left.len(), chance });
    }
    late
}

/// Returns the finding on a late rank; `None` if its fix saves nothing.
fn accuse_late(steps: &[&StepAnalysis], late: &Late, setting: &Setting<'_>) -> Option<Finding> {
    let mut finding = accuse(steps, late.rank, setting)?;
    finding.verdict.confidence = Confidence::Medium;
    finding.verdict.onset = None;
    // Whether the fault goes on after the last recorded step is not known.
    finding.verdict.state = VerdictState::Active;
    (finding.verdict.persistence, finding.verdict.device_hours_per_day) = (None, None);
    let hidden = mostly_hidden(steps, late.rank, finding.verdict.cost_nanos_per_step);
    finding.statement = Statement::InRecordedSteps { steps: steps.len(), mostly_hidden: hidden };
    let &Late { last, collectives, chance, .. } = late;
    finding.evidence.insert(0, Evidence::LastInCollectives { last, collectives, chance });
    Some(finding)
}

/// Returns why a late rank has no verdict whose fix saves nothing.
fn late_at_no_cost(late: &Late, delays: &[Delay]) -> Missing {
    let own = delays.iter().filter(|delay| delay.rank == late.rank).map(|delay| delay.nanos);
    Missing::LateAtNoCost {
        rank: late.rank as u32,
        last: late.last as u64,
        collectives: late.collectives as u64,
        nanos: stats::mean(own).unwrap_or(0.0) as u64,
    }
}

/// Returns the delays of the newest steps, at most [`MOST_DELAYS`].
fn newest_delays(steps: &[&StepAnalysis]) -> Vec<Delay> {
    steps.iter().rev().flat_map(|step| delays(step)).take(MOST_DELAYS).collect()
}

/// Names the rank that is late, if one is late more than chance explains, in a job that does not show whether ranks compute while
/// their collectives run: the cost of lateness is not known there. `function` is that of most of these collectives.
pub(super) fn late_at_unknown_cost(steps: &[&StepAnalysis], function: Function) -> Option<Missing> {
    let ranks = steps.iter().map(|step| step.ranks.len()).max()?;
    let delays = newest_delays(steps);
    let scores = scores(&delays, ranks);
    let worst = (0..ranks).max_by(|&a, &b| scores[a].total_cmp(&scores[b]))?;
    let own: Vec<f64> = delays.iter().filter(|delay| delay.rank == worst).map(|delay| delay.nanos).collect();
    let mean = stats::mean(own.iter().copied())?;
    (chance(&delays, ranks, scores[worst]) <= MAX_CHANCE).then_some(Missing::UnknownCost {
        rank: worst as u32,
        last: own.len() as u64,
        collectives: delays.len() as u64,
        nanos: mean as u64,
        function,
    })
}

/// Returns the delays of the step's collectives among all ranks.
fn delays(step: &StepAnalysis) -> impl Iterator<Item = Delay> {
    let ranks = step.ranks.len() as u32;
    let whole = step.collectives.iter().filter(move |collective| collective.group.ranks == ranks);
    whole.filter_map(|collective| {
        let (rank, nanos) =
            (collective.culprit?, collective.newly_late_nanos.filter(|&nanos| nanos > 0)? as f64);
        Some(Delay { rank, nanos, group: collective.group, first: collective.first })
    })
}

/// Returns a finding against a rank in all steps; `None` if its fix saves nothing.
fn accuse(steps: &[&StepAnalysis], rank: usize, setting: &Setting<'_>) -> Option<Finding> {
    let claims: Vec<Option<Claim>> = steps.iter().map(|step| Claim::new(step)).collect();
    let savings: Vec<f64> =
        steps.iter().zip(&claims).map(|(step, claim)| claim::saving(step, claim.as_ref(), &[rank])).collect();
    let is_last: Vec<bool> = savings.iter().map(|saving| *saving > 0.0).collect();
    let is_healthy = vec![false; steps.len()];
    let suspicion = Suspicion { ranks: &[rank], savings, is_last, is_healthy };
    let all = 0..steps.len();
    let mut fault = suspicion.gather(std::slice::from_ref(&all), steps)?;
    fault.cost = cost(steps, &suspicion.savings)?;
    if fault.cost.nanos <= 0.0 {
        return None;
    }
    suspicion.accuse(&fault, steps, setting)
}

/// Returns what a fix would save per step. `savings` has that of each step in nanoseconds. If most of the steps can be replayed, the others
/// do not count, as in the what-ifs: by how much the work of a rank is longer says nothing there of what the others could have used it for.
fn cost(steps: &[&StepAnalysis], savings: &[f64]) -> Option<Cost> {
    let is_replayed = |step: &StepAnalysis| step.replay.as_ref().is_some_and(Replay::is_trusted);
    let (replayed, saved): (Vec<&StepAnalysis>, Vec<f64>) = steps
        .iter()
        .zip(savings)
        .filter(|(step, _)| is_replayed(step))
        .map(|(&step, &saving)| (step, saving))
        .unzip();
    if replayed.len() * 2 >= steps.len() {
        return Cost::new(&replayed, saved.into_iter());
    }
    Cost::new(steps, savings.iter().copied())
}

/// Returns how late a rank is in all, in nanoseconds per step, if most of that costs nothing. A delay that lasts over several collectives
/// counts once.
fn mostly_hidden(steps: &[&StepAnalysis], rank: usize, cost: u64) -> Option<f64> {
    let lateness = |step: &&StepAnalysis| {
        step.collectives
            .iter()
            .filter(|collective| collective.culprit == Some(rank))
            .filter_map(|collective| collective.newly_late_nanos)
            .sum::<u64>()
    };
    stats::mean(steps.iter().map(|step| lateness(step) as f64)).filter(|&late| cost as f64 <= HIDDEN * late)
}

/// Returns true if a recorded job is judged by its collectives, because it has too few steps to be judged as a live run is.
pub(super) fn applies(steps: usize, setting: &Setting<'_>) -> bool {
    setting.is_recorded && (1..MIN_STEPS).contains(&steps)
}

#[cfg(test)]
mod tests;
