//! Verdicts on recorded jobs of few steps, such as a trace of three steps: each collective says which rank was last.
//!
//! After a collective among all ranks, all of them go on at the same time. Who starts the next one last is therefore a new
//! question each time, and a rank that is last again and again, by much, is so for a reason. Chance is measured on the
//! recorded delays themselves: in each of many draws, every collective is charged to any of its ranks. A rank is named if it
//! has more than the worst rank has in all but [`MAX_CHANCE`] of the draws, and if its fix saves enough.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use wire::views::{Confidence, Missing, VerdictState};

use super::{Findings, MIN_STEPS, Setting, Suspicion, claim, is_notable};
use crate::finding::{Evidence, Finding, Statement};
use crate::step::StepAnalysis;
use claim::Claim;

/// The largest probability of a false alarm: that in a job whose ranks are equally often last, some rank is named.
const MAX_CHANCE: f64 = 0.01;
/// The number of draws. The probability is known to a tenth of its limit.
const DRAWS: u32 = 20_000;
/// The delay that counts as none, in nanoseconds: kernels on several devices start this far apart without any reason.
const UNSTEADY_NANOS: f64 = 20_000.0;
/// The seed of the draws, so that the same records give the same verdict.
const SEED: u64 = 0x5eed;

/// A collective among all ranks: the rank that started last, and by how much after the one before it.
#[derive(Clone, Copy, Debug)]
struct Delay {
    rank: usize,
    nanos: f64,
}

impl Delay {
    /// Returns the weight of the delay. A logarithm, because one long delay alone says nothing about whose they are.
    fn weight(self) -> f64 {
        (self.nanos / UNSTEADY_NANOS).ln_1p()
    }
}

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
    Ok(match is_notable(&finding.verdict, steps, setting) {
        true => Findings { verdicts: vec![finding], notes: Vec::new() },
        false => Findings { verdicts: Vec::new(), notes: vec![finding] },
    })
}

/// Returns the delays of the step's collectives among all ranks.
fn delays(step: &StepAnalysis) -> impl Iterator<Item = Delay> {
    let ranks = step.ranks.len() as u32;
    let of_all = step.collectives.iter().filter(move |one| one.group.ranks == ranks);
    of_all.filter_map(|one| Some(Delay { rank: one.culprit?, nanos: one.last_by_nanos? as f64 }))
}

fn scores(delays: &[Delay], ranks: usize) -> Vec<f64> {
    let mut scores = vec![0.0; ranks];
    for delay in delays {
        scores[delay.rank] += delay.weight();
    }
    scores
}

/// Returns the probability that the worst rank has at least `score` if any rank is equally likely to be last in each
/// collective.
fn chance(delays: &[Delay], ranks: usize, score: f64) -> f64 {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let weights: Vec<f64> = delays.iter().map(|delay| delay.weight()).collect();
    let mut drawn = vec![0.0; ranks];
    let mut reached = 0;
    for _ in 0..DRAWS {
        drawn.fill(0.0);
        weights.iter().for_each(|weight| drawn[random.random_range(0..ranks)] += weight);
        // A sum in another order differs in its last digits.
        reached += u32::from(drawn.iter().any(|of_rank| *of_rank >= score * (1.0 - 1e-9)));
    }
    // The recorded delays are one of the draws (Davison and Hinkley, 1997).
    f64::from(reached + 1) / f64::from(DRAWS + 1)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(of: &[(usize, u64)]) -> Vec<Delay> {
        of.iter().map(|&(rank, micros)| Delay { rank, nanos: micros as f64 * 1e3 }).collect()
    }

    fn chance_of(of: &[(usize, u64)], ranks: usize) -> f64 {
        let delays = delays(of);
        let worst = scores(&delays, ranks).into_iter().fold(0.0, f64::max);
        chance(&delays, ranks, worst)
    }

    #[test]
    fn chance_is_that_of_equally_likely_ranks() {
        // One of four ranks is last in all three collectives: 4 / 4^3.
        let thrice = chance_of(&[(2, 1_000), (2, 1_000), (2, 1_000)], 4);
        assert!((thrice - 1.0 / 16.0).abs() < 0.01, "{thrice}");
        assert!(chance_of(&[(2, 1_000_000)], 4) > 0.99, "one delay, however long");
        assert!(chance_of(&[(2, 1_000_000), (2, 9), (1, 8), (3, 9), (0, 9)], 4) > 0.5);
        assert!(chance_of(&[(0, 5), (1, 5), (2, 5), (3, 5)], 4) > 0.9);
        assert!(chance_of(&[(2, 900); 6], 4) < MAX_CHANCE);
    }

    /// Draws healthy jobs: in how many is a rank beyond the limit?
    #[test]
    fn in_healthy_jobs_a_rank_stands_out_as_seldom_as_the_limit_says() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let jobs = 300;
        let alarms = (0..jobs).filter(|_| {
            let ranks = random.random_range(2..9);
            // Delays of all sizes, a few of them long.
            let delays: Vec<Delay> = (0..random.random_range(3..40))
                .map(|_| Delay {
                    rank: random.random_range(0..ranks),
                    nanos: 10_f64.powf(random.random_range(3.0..9.0)),
                })
                .collect();
            let worst = scores(&delays, ranks).into_iter().fold(0.0, f64::max);
            chance(&delays, ranks, worst) <= MAX_CHANCE
        });
        // 3 of 300 are expected; 10 are less likely than 0.1 %.
        assert!(alarms.count() < 10);
    }
}
