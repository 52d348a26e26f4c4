//! Verdicts (METRICS.md, "what-if" and "verdict"): who costs the run time, why, how much, and how one knows.
//!
//! What fixing a rank saves in a step is the replay's answer (`crate::replay`); where a step cannot be replayed
//! closely, it is what the rank's *own work* (its step less what it spent on collectives in the open, but for
//! transfers that took it longer than the median rank) exceeds the longest of the others by. Steps are judged
//! in blocks, so that a fault that came and went is dated and its cost is not diluted into nothing; a block
//! only counts against a rank that was last in most of its steps, because in a healthy run everyone is last
//! sometimes.

mod episodes;
mod everyone;
mod evidence;
mod excess;
mod onset;

use std::collections::BTreeSet;

use wire::views::{Confidence, Culprit, Persistence, Verdict};

use crate::stats;
use crate::step::StepAnalysis;
use episodes::Claim;
use evidence::Case;
use excess::Excess;

/// Observed steps needed before a rank is named.
const LEAST_STEPS: usize = episodes::BLOCK * episodes::LEAST_BLOCKS;
/// And before one is sure.
const HIGH_CONFIDENCE_STEPS: usize = 2 * LEAST_STEPS;
/// Of the savings of the bad steps, this share is left out at either end: a step that the machine spoilt for
/// some other reason says nothing about the rank.
const TRIM: f64 = 0.1;
/// A verdict is given from this share of the step time on.
const LEAST_COST_SHARE: f64 = 0.02;
/// And once the rank has cost the time of so many whole steps: the smaller an effect, the longer it is watched.
/// Cores of one machine differ by some percent for seconds at a time, which is true and of no use to anyone.
const LEAST_STEPS_LOST: f64 = 5.0;
/// Standard deviations that a rank must be last more often than its turn over all steps: p < 1e-5.
const LEAST_OFTEN_Z: f64 = 4.42;

/// All verdicts over `steps` (observed ones, in order), worst first.
#[must_use]
pub fn verdicts(steps: &[&StepAnalysis]) -> Vec<Verdict> {
    let ranks = steps.iter().map(|step| step.ranks.len()).max().unwrap_or(0);
    if ranks < 2 || steps.len() < LEAST_STEPS {
        return Vec::new();
    }
    let claims: Vec<Option<Claim>> = steps.iter().map(|step| Claim::of(step)).collect();
    let suspects: BTreeSet<&[usize]> = claims.iter().flatten().map(|claim| claim.ranks.as_slice()).collect();
    let mut verdicts: Vec<Verdict> =
        suspects.into_iter().filter_map(|ranks| against(steps, &claims, ranks)).collect();
    let explained = verdicts.iter().map(|verdict| verdict.cost_ns_per_step).sum();
    verdicts.extend(everyone::verdicts(steps, explained));
    verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.cost_ns_per_step));
    verdicts
}

/// Why there may be no verdict: `None` when there are enough steps for one.
#[must_use]
pub fn insufficient(steps: usize, ranks: usize) -> Option<String> {
    if ranks < 2 {
        return Some("one rank waits for nobody".into());
    }
    (steps < LEAST_STEPS)
        .then(|| format!("insufficient evidence: {steps} observed steps, {LEAST_STEPS} are needed"))
}

fn against(steps: &[&StepAnalysis], claims: &[Option<Claim>], ranks: &[usize]) -> Option<Verdict> {
    let mut bad = episodes::bad_steps(steps, claims, ranks)?;
    let stretches = onset::stretches(&bad);
    let persistence = onset::persistence(&stretches, steps.len());
    let onset = onset::onset(steps, ranks, &stretches);
    if let Some(onset) = onset.filter(|onset| onset.verified && persistence != Persistence::Persistent) {
        // A rank that happened to be last before it was slow is charged from the date on.
        bad.retain(|&at| steps[at].step.0 >= onset.step);
    }
    let savings: Vec<f64> = bad.iter().map(|&at| episodes::saving(&claims[at], ranks)).collect();
    let last_in = savings.iter().filter(|&&saved| saved > 0.0).count();
    let last_in_all = claims.iter().filter(|claim| episodes::saving(claim, ranks) > 0.0).count();
    let turns = |times, of| oftener_than_its_turn(times, of, steps[0].ranks.len());
    if turns(last_in_all, steps.len()) < LEAST_OFTEN_Z
        && turns(last_in, bad.len()) < least_often_z_of_chosen(bad.len(), steps.len())
    {
        return None;
    }
    let usual = stats::trimmed_mean(savings.iter().copied(), TRIM)?;
    let cost = (usual * bad.len() as f64 / steps.len() as f64) as u64;
    let share = cost_share(cost, steps);
    if share < LEAST_COST_SHARE || share * (steps.len() as f64) < LEAST_STEPS_LOST {
        return None;
    }
    let bad_steps: Vec<&StepAnalysis> = bad.iter().map(|&at| steps[at]).collect();
    let case = Case {
        ranks,
        watched: steps.len(),
        last_in,
        excess: Excess::of(&bad_steps, ranks)?,
        onset,
        episodes: stretches.len(),
        persistence,
        cost,
        usual,
        share,
        bad: &bad_steps,
    };
    Some(Verdict {
        culprit: Some(culprit(ranks)),
        cause: case.excess.cause(),
        cost_ns_per_step: cost,
        cost_share: share,
        gpu_hours_per_day: share * steps[0].ranks.len() as f64 * 24.0,
        confidence: confidence(&case),
        sentence: case.sentence(),
        evidence: case.evidence(),
        counter_evidence: case.counter_evidence(),
        example_step: example_step(&bad_steps, &savings),
        persistence: Some(persistence),
        steps: Some((bad_steps[0].step.0, bad_steps[bad_steps.len() - 1].step.0)),
        onset: onset.filter(|_| persistence != Persistence::Persistent),
    })
}

/// How much oftener than one time in `ranks` something happened, in standard deviations of the binomial.
fn oftener_than_its_turn(times: usize, steps: usize, ranks: usize) -> f64 {
    let (n, p) = (steps as f64, 1.0 / ranks as f64);
    (times as f64 - n * p) / (n * p * (1.0 - p)).sqrt()
}

/// What must be asked of `chosen` of `watched` steps: [`LEAST_OFTEN_Z`] as if they had been given, and more because
/// they were chosen for it. Of two equal ranks one is last in 15 of 25 steps every fifth time, so that among many
/// blocks some always stand against a rank. With N ways to choose the blocks the p asked for is N times smaller
/// (Bonferroni), of which the square of z is 2 ln N larger.
fn least_often_z_of_chosen(chosen: usize, watched: usize) -> f64 {
    let (blocks, chosen) = (watched.div_ceil(episodes::BLOCK), chosen.div_ceil(episodes::BLOCK));
    LEAST_OFTEN_Z.mul_add(LEAST_OFTEN_Z, 2.0 * stats::ln_choose(blocks, chosen)).sqrt()
}

fn culprit(ranks: &[usize]) -> Culprit {
    match ranks {
        [one] => Culprit::Rank(*one as u32),
        several => Culprit::Ranks(several.iter().map(|&rank| rank as u32).collect()),
    }
}

fn confidence(case: &Case<'_>) -> Confidence {
    let last_share = case.last_in as f64 / case.bad.len() as f64;
    let is_sure = last_share >= 0.8 && case.excess.is_clear() && case.shared_cores().is_none();
    if case.bad.len() >= HIGH_CONFIDENCE_STEPS && is_sure { Confidence::High } else { Confidence::Medium }
}

pub(crate) fn cost_share(cost_nanos: u64, steps: &[&StepAnalysis]) -> f64 {
    let total: u64 = steps.iter().map(|step| step.period_nanos()).sum();
    if total == 0 { 0.0 } else { cost_nanos as f64 * steps.len() as f64 / total as f64 }
}

pub(crate) fn millis(nanos: f64) -> String {
    let millis = nanos / 1e6;
    if millis.abs() >= 10.0 { format!("{millis:.0} ms") } else { format!("{millis:.1} ms") }
}

/// The step with the median saving shows the usual picture.
fn example_step(steps: &[&StepAnalysis], savings: &[f64]) -> Option<u64> {
    let mut by_saving: Vec<(f64, u64)> =
        savings.iter().copied().zip(steps.iter().map(|step| step.step.0)).collect();
    by_saving.sort_by(|a, b| a.0.total_cmp(&b.0));
    by_saving.get(by_saving.len() / 2).map(|&(_, step)| step)
}

#[cfg(test)]
mod tests;
