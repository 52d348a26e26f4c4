//! Verdicts (METRICS.md, "what-if" and "verdict"): who costs the run time, why, how much, and how one knows.
//!
//! What fixing a rank saves in a step is the replay's answer (`crate::replay`); where a step cannot be replayed
//! closely, it is what the rank's *own work* (its step less what it spent on collectives in the open, but for
//! transfers that took it longer than the median rank) exceeds the longest of the others by. [`episodes`] finds the
//! steps that have a fault, so that it is dated and its cost is not diluted into nothing; [`apart`] tells several faults
//! of a rank from each other. A rank is named only when
//! it was last in these steps far oftener than by chance, because in a healthy run every rank is last sometimes.
//!
//! What costs little is a *note* and not a verdict, and so is what no record tells from the ordinary unsteadiness of
//! a processor ([`Setting`]).

mod apart;
mod claim;
mod course;
mod episodes;
mod everyone;
mod evidence;
mod excess;
#[cfg(test)]
pub(crate) mod fixture;
mod processor;
pub(crate) mod says;

use std::collections::BTreeMap;
use std::ops::Range;

use wire::views::{Cause, ComputedOn, Confidence, Culprit, Verdict, VerdictState};

use crate::cost::Cost;
use crate::stats;
use crate::step::StepAnalysis;
use claim::Claim;
use evidence::Case;
use excess::Excess;

/// Observed steps needed before a rank is named.
const LEAST_STEPS: usize = 20;
/// Steps with the fault before one is sure.
const HIGH_CONFIDENCE_STEPS: usize = 100;
/// A fault is obvious, and is named at once, when it costs this share of a step,
const OBVIOUS_SHARE: f64 = 0.2;
/// in at least this many steps,
const OBVIOUS_STEPS: usize = 20;
/// with the rank last in this share of them,
const OBVIOUS_LAST_SHARE: f64 = 0.8;
/// and at a cost of this many standard deviations of its scatter from step to step. No healthy rank falls that far
/// behind for that long.
const OBVIOUS_DEVIATIONS: f64 = 3.0;
/// In the steps with the fault the rank is last in at least this share: more than chance makes it.
const LEAST_LAST_SHARE: f64 = 0.6;
/// An effect that costs less than this share of all time watched is not reported.
const LEAST_COST_SHARE: f64 = 0.02;
/// And once the rank has cost the time of so many whole steps: the smaller an effect, the longer it is watched.
/// Cores of one machine differ by some percent for seconds at a time, which is true and of no use to anyone.
const LEAST_STEPS_LOST: f64 = 5.0;
/// Standard deviations that a rank must be last more often than its turn over all steps: p < 1e-5.
const LEAST_OFTEN_Z: f64 = 4.42;
/// Neighbouring steps are alike: when the steps of a fault are chosen, this many count as one choice.
const CHOSEN_TOGETHER: usize = 25;

/// What decides whether an effect is a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting<'a> {
    /// What the ranks compute on.
    pub computed_on: ComputedOn,
    /// An effect that costs less than this share of all time watched is a note; 0 to 1.
    pub notable_share: f64,
    /// Steps that cannot be shown, in order: none of them is an example.
    pub hidden_steps: &'a [u64],
}

impl Setting<'_> {
    fn can_show(&self, step: &StepAnalysis) -> bool {
        self.hidden_steps.binary_search(&step.step.0).is_err()
    }
}

/// The share of time from which on people care: 5 %.
pub const NOTABLE_SHARE: f64 = 0.05;

/// What was found: each list has those that are there before those that are over, each worst first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdicts {
    /// Worth a person's attention.
    pub verdicts: Vec<Verdict>,
    /// What is true and costs little.
    pub notes: Vec<Verdict>,
}

/// All verdicts over `steps`, which must be observed ones, in order.
#[must_use]
pub fn verdicts(steps: &[&StepAnalysis], setting: &Setting<'_>) -> Verdicts {
    let ranks = steps.iter().map(|step| step.ranks.len()).max().unwrap_or(0);
    if ranks < 2 || steps.len() < LEAST_STEPS {
        return Verdicts::default();
    }
    let claims: Vec<Option<Claim>> = steps.iter().map(|step| Claim::of(step)).collect();
    let mut all: Vec<Verdict> =
        suspects(&claims).flat_map(|ranks| against(steps, &claims, ranks, setting)).collect();
    let lost: u64 = all.iter().map(Verdict::lost_ns).sum();
    all.extend(everyone::verdicts(steps, lost / steps.len() as u64, setting));
    let order =
        |verdict: &Verdict| (verdict.state == VerdictState::Resolved, std::cmp::Reverse(verdict.lost_ns()));
    all.sort_by_key(order);
    let (verdicts, notes) = all.into_iter().partition(|verdict| is_notable(verdict, steps, setting));
    Verdicts { verdicts, notes }
}

/// Ranks, or ranks together, that enough steps are held against to be worth a look.
fn suspects(claims: &[Option<Claim>]) -> impl Iterator<Item = &[usize]> {
    let mut held: BTreeMap<&[usize], usize> = BTreeMap::new();
    for claim in claims.iter().flatten().filter(|claim| claim.nanos > 0.0) {
        *held.entry(&claim.ranks).or_default() += 1;
    }
    held.into_iter().filter(|(_, steps)| *steps >= episodes::CHANGE_STEPS).map(|(ranks, _)| ranks)
}

/// An effect is notable when it has cost a notable share of all time watched. One that lasts, in every step, is notable
/// already when it costs that share of the steps that have it, unless its cause is the processor.
fn is_notable(verdict: &Verdict, steps: &[&StepAnalysis], setting: &Setting<'_>) -> bool {
    let total: u64 = steps.iter().map(|step| step.period_nanos()).sum();
    let lasts = verdict.state == VerdictState::Active && verdict.cause != Cause::Processor;
    verdict.lost_ns() as f64 >= setting.notable_share * total as f64
        || (lasts && verdict.cost_share >= setting.notable_share)
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

/// One verdict for each fault of `ranks`.
fn against(
    steps: &[&StepAnalysis],
    claims: &[Option<Claim>],
    ranks: &[usize],
    setting: &Setting<'_>,
) -> Vec<Verdict> {
    let savings: Vec<f64> =
        steps.iter().zip(claims).map(|(step, claim)| claim::saving(step, claim.as_ref(), ranks)).collect();
    let usual_step = stats::median(steps.iter().map(|step| step.period_nanos() as f64)).unwrap_or(0.0);
    let episodes = episodes::episodes(&savings, usual_step);
    let mut is_healthy = vec![true; steps.len()];
    episodes.iter().for_each(|episode| is_healthy[episode.clone()].fill(false));
    let faults = apart::faults(episodes, steps, ranks);
    let is_last = |at: usize| claims[at].as_ref().is_some_and(|claim| claim.against(ranks) > 0.0);
    let is_last: Vec<bool> = (0..steps.len()).map(is_last).collect();
    let suspicion = Suspicion { ranks, savings, is_last, is_healthy };
    faults.iter().filter_map(|fault| suspicion.charge(fault, steps, setting)).collect()
}

/// What is known of ranks, step by step, before one asks why.
struct Suspicion<'a> {
    ranks: &'a [usize],
    /// What fixing them would save, in nanoseconds.
    savings: Vec<f64>,
    /// Whether they were last.
    is_last: Vec<bool>,
    /// No fault of theirs was there.
    is_healthy: Vec<bool>,
}

impl Suspicion<'_> {
    /// A verdict on one fault, whose episodes are ranges of indices into `steps`. `None` when chance explains it, or it
    /// is not worth telling.
    fn charge(
        &self,
        episodes: &[Range<usize>],
        steps: &[&StepAnalysis],
        setting: &Setting<'_>,
    ) -> Option<Verdict> {
        let ranks = self.ranks;
        let bad: Vec<usize> = episodes.iter().cloned().flatten().collect();
        let bad_steps: Vec<&StepAnalysis> = bad.iter().map(|&at| steps[at]).collect();
        let cost = Cost::of(&bad_steps, bad.iter().map(|&at| self.savings[at]))?;
        let chosen = self.chosen(&bad);
        let is_obvious = chosen.is_obvious(cost, &self.savings);
        let is_beyond_chance = chosen.is_beyond_chance(steps[0].ranks.len());
        if !(is_obvious || is_beyond_chance && is_worth_telling(steps, &bad_steps, cost)) {
            return None;
        }
        let persistence = course::persistence(episodes, steps.len());
        let state = course::state(episodes, steps.len());
        let mut excess = Excess::of(&bad_steps, ranks)?;
        excess.is_processors = processor::explains(&excess, persistence, cost, setting);
        let onset = course::onset(steps, ranks, episodes);
        let (bad_steps, last_in) = (bad_steps.as_slice(), chosen.last_in);
        let case =
            Case { ranks, steps, bad: bad_steps, last_in, excess, persistence, state, episodes, cost, onset };
        Some(Verdict {
            culprit: Some(culprit(ranks)),
            cause: case.excess.cause(),
            state,
            cost_ns_per_step: cost.nanos as u64,
            cost_share: cost.share,
            affected_steps: bad.len() as u64,
            device_hours_per_day: hours_per_day(cost.share, state, steps[0].ranks.len()),
            confidence: confidence(&case),
            sentence: case.sentence(),
            evidence: case.evidence(),
            counter_evidence: case.counter_evidence(),
            example_step: example_step(bad_steps, &bad, &self.savings, setting),
            persistence: Some(persistence),
            steps: case.range(),
            onset,
        })
    }

    /// Steps with other faults of these ranks say nothing about this one.
    fn chosen(&self, bad: &[usize]) -> Chosen {
        let last_in = bad.iter().filter(|&&at| self.is_last[at]).count();
        let healthy = || self.is_healthy.iter().zip(&self.is_last).filter(|(is_healthy, _)| **is_healthy);
        let last_else = healthy().filter(|(_, is_last)| **is_last).count();
        Chosen {
            last_in,
            bad: bad.len(),
            last_in_all: last_in + last_else,
            all: bad.len() + healthy().count(),
        }
    }
}

/// What a day costs while the fault lasts, in hours of one rank.
pub(crate) fn hours_per_day(share: f64, state: VerdictState, ranks: usize) -> Option<f64> {
    (state != VerdictState::Resolved).then_some(share * ranks as f64 * 24.0)
}

fn is_worth_telling(steps: &[&StepAnalysis], bad: &[&StepAnalysis], cost: Cost) -> bool {
    let lost = cost.share * bad.len() as f64;
    lost >= LEAST_COST_SHARE * steps.len() as f64 && lost >= LEAST_STEPS_LOST
}

/// In how many steps a rank was last: of those chosen for it, and of all but those with another fault of its own.
struct Chosen {
    last_in: usize,
    bad: usize,
    last_in_all: usize,
    all: usize,
}

impl Chosen {
    fn is_beyond_chance(&self, ranks: usize) -> bool {
        let turns = |times, of| oftener_than_its_turn(times, of, ranks);
        self.last_in as f64 >= LEAST_LAST_SHARE * self.bad as f64
            && (turns(self.last_in_all, self.all) >= LEAST_OFTEN_Z
                || turns(self.last_in, self.bad) >= least_often_z_of_chosen(self.bad, self.all))
    }

    fn is_obvious(&self, cost: Cost, savings: &[f64]) -> bool {
        let changes = savings.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        // For normal scatter the median |difference| of neighbours is 0.954 deviations.
        let deviation = stats::median(changes).unwrap_or(f64::MAX) / 0.954;
        self.bad >= OBVIOUS_STEPS
            && self.last_in as f64 >= OBVIOUS_LAST_SHARE * self.bad as f64
            && cost.share >= OBVIOUS_SHARE
            && cost.nanos >= OBVIOUS_DEVIATIONS * deviation
    }
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
    let (blocks, chosen) = (watched.div_ceil(CHOSEN_TOGETHER), chosen.div_ceil(CHOSEN_TOGETHER));
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
    let is_processors = case.excess.cause() == Cause::Processor;
    let is_high = case.bad.len() >= HIGH_CONFIDENCE_STEPS && is_sure && !is_processors;
    if is_high { Confidence::High } else { Confidence::Medium }
}

pub(crate) fn millis(nanos: f64) -> String {
    let millis = nanos / 1e6;
    if millis.abs() >= 10.0 { format!("{millis:.0} ms") } else { format!("{millis:.1} ms") }
}

/// The step with the median saving shows the usual picture. `None` when no step can be shown.
fn example_step(
    steps: &[&StepAnalysis],
    bad: &[usize],
    savings: &[f64],
    setting: &Setting<'_>,
) -> Option<u64> {
    let shown = steps.iter().zip(bad).filter(|(step, _)| setting.can_show(step));
    let mut by_saving: Vec<(f64, u64)> = shown.map(|(step, &at)| (savings[at], step.step.0)).collect();
    by_saving.sort_by(|a, b| a.0.total_cmp(&b.0));
    by_saving.get(by_saving.len() / 2).map(|&(_, step)| step)
}

#[cfg(test)]
mod tests;
