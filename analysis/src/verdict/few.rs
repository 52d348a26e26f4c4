//! Verdicts on recorded jobs of few steps, such as a trace of three steps: each collective says which rank was last.
//!
//! After a collective among all ranks, all of them go on at the same time. Who starts the next one last is therefore a new
//! question each time, and a rank that is last again and again, by much, is so for a reason. A rank is named if it is last more
//! than chance explains ([`super::chance`]), and if its fix saves enough.
//!
//! Where no collective is among all ranks, a rank of a group may be last because it waited for another group. Only its own compute
//! is then held against it ([`super::longest`]).

use wire::event::Function;
use wire::views::{Confidence, Missing, VerdictState};

use super::chance::{Delay, MAX_CHANCE, chance, scores};
use super::{Findings, MIN_STEPS, Setting, Suspicion, claim, everyone, is_notable};
use crate::finding::{Evidence, Finding, Statement};
use crate::stats;
use crate::step::StepAnalysis;
use claim::Claim;

/// The number of delays that decide whether a rank is late, the newest ones: their draws take some hundredths of a second.
const MOST_DELAYS: usize = 2_000;

/// Judges the observed steps of a recorded job, fewer than a live run needs for a verdict.
///
/// # Errors
/// Returns the reason why no rank is named.
pub(super) fn judge(steps: &[&StepAnalysis], setting: &Setting<'_>) -> Result<Findings, Missing> {
    let ranks = steps.iter().map(|step| step.ranks.len()).max().unwrap_or(0);
    let delays: Vec<Delay> = steps.iter().flat_map(|step| delays(step)).collect();
    let unclear = || Missing::FewCollectives { collectives: delays.len() as u64, steps: steps.len() as u64 };
    let scores = scores(&delays, ranks);
    let Some(worst) = (0..ranks).max_by(|&a, &b| scores[a].total_cmp(&scores[b])) else {
        return Err(Missing::NoObservedStep);
    };
    if delays.is_empty() {
        let finding = everyone::longest_of_group(steps).ok_or_else(unclear)?;
        return Ok(Findings { verdicts: vec![finding], notes: Vec::new() });
    }
    let chance = chance(&delays, ranks, scores[worst]);
    if chance > MAX_CHANCE {
        return Err(unclear());
    }
    let last = delays.iter().filter(|delay| delay.rank == worst).count();
    let finding = accuse(steps, worst, setting).map(|mut finding| {
        finding.verdict.confidence = Confidence::Medium;
        finding.verdict.onset = None;
        // Whether the fault goes on after the last recorded step is not known.
        finding.verdict.state = VerdictState::Active;
        (finding.verdict.persistence, finding.verdict.device_hours_per_day) = (None, None);
        finding.statement = Statement::InRecordedSteps { steps: steps.len() };
        finding.evidence.insert(0, Evidence::LastInCollectives { last, collectives: delays.len(), chance });
        finding
    });
    let Some(finding) = finding else { return Err(unclear()) };
    Ok(match is_notable(&finding, steps, setting) {
        true => Findings { verdicts: vec![finding], notes: Vec::new() },
        false => Findings { verdicts: Vec::new(), notes: vec![finding] },
    })
}

/// Names the rank that is late, if one is late more than chance explains, in a job that does not show whether ranks compute while
/// their collectives run: the cost of lateness is not known there. `function` is that of most of these collectives.
pub(super) fn late_at_unknown_cost(steps: &[&StepAnalysis], function: Function) -> Option<Missing> {
    let ranks = steps.iter().map(|step| step.ranks.len()).max()?;
    let newest = steps.iter().rev().flat_map(|step| delays(step));
    let delays: Vec<Delay> = newest.take(MOST_DELAYS).collect();
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
    let of_all = step.collectives.iter().filter(move |one| one.group.ranks == ranks);
    of_all.filter_map(|one| {
        let (rank, nanos) = (one.culprit?, one.last_by_nanos? as f64);
        Some(Delay { rank, nanos, group: one.group, first: one.first })
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
    let fault = suspicion.gather(std::slice::from_ref(&all), steps).filter(|fault| fault.cost.nanos > 0.0)?;
    suspicion.accuse(&fault, steps, setting)
}

/// Returns true if a recorded job is judged by its collectives, because it has too few steps to be judged as a live run is.
pub(super) fn applies(steps: usize, ranks: usize, setting: &Setting<'_>) -> bool {
    setting.is_recorded && ranks >= 2 && (1..MIN_STEPS).contains(&steps)
}
