//! Verdicts: which rank costs the run time, why, how much, and on what evidence (`docs/metrics.md`, "Verdict").
//!
//! The saving from fixing a rank in a step comes from the replay (`crate::replay`). If a step cannot be replayed
//! accurately, the saving is the difference between the rank's *local work* and the longest local work of any other
//! rank. Local work is the step less exposed collectives; transfers that take the rank longer than the median rank
//! count as local work here.
//!
//! [`episodes`] finds the steps that have a fault, so that the fault is dated and its cost is not averaged over healthy
//! steps. [`apart`] distinguishes several faults of one rank. A rank is named only if it was last in these steps far
//! more often than by chance, because in a healthy run every rank is last sometimes.
//!
//! [`stalls`] finds single steps in which one rank falls far behind, again and again, but too seldom for an episode.
//!
//! An effect that costs little is a *note* instead of a verdict. So is an effect that no record can distinguish from
//! the ordinary unsteadiness of a processor ([`Setting`]).

mod alike;
mod apart;
mod chance;
mod claim;
mod course;
mod episodes;
mod everyone;
mod evidence;
mod excess;
mod few;
#[cfg(test)]
pub(crate) mod fixture;
mod grows;
mod longest;
mod now_and_then;
mod processor;
mod recurrence;
mod stalls;

use std::collections::BTreeMap;
use std::ops::Range;

use wire::event::Function;
use wire::views::goodput::{Goodput, TimeUse};
use wire::views::{Cause, ComputedOn, Confidence, Culprit, Missing, Persistence, Verdict, VerdictState};

use crate::account::StepAccount;
use crate::cost::Cost;
use crate::finding::{Finding, Reason, Statement};
use crate::step::StepAnalysis;
use crate::{hang, stats, trend};
use claim::Claim;
pub(crate) use everyone::{MIN_SHARE, finding_on_all};
use evidence::Case;
use excess::Excess;
use grows::Grows;
use now_and_then::Window;
use recurrence::Times;
use stalls::Watched;

/// The number of observed steps before a rank is named.
pub(crate) const MIN_STEPS: usize = 20;
/// The number of steps with the fault that high confidence requires.
pub(crate) const HIGH_CONFIDENCE_STEPS: usize = 100;
/// The least share of a step that an obvious fault costs. An obvious fault is named at once.
const OBVIOUS_SHARE: f64 = 0.2;
/// The least number of steps that have an obvious fault.
const OBVIOUS_STEPS: usize = 20;
/// The least share of these steps in which the rank is last.
const OBVIOUS_LAST_SHARE: f64 = 0.8;
/// The least cost of an obvious fault, in standard deviations of its scatter from step to step. No healthy rank falls
/// behind that far for that long.
const OBVIOUS_DEVIATIONS: f64 = 3.0;
/// How often a rank must be last in the steps with the fault. A healthy rank is last when it is its turn: in one of as many steps as there
/// are ranks. The named one must be last in this share of the other steps too: in 60 % of all steps with two ranks, in 40 % with four.
/// Chance alone seldom reaches it.
const MIN_LAST_BEYOND_TURN: f64 = 0.2;
/// The least share of all observed time that an effect must cost to be reported.
const MIN_COST_SHARE: f64 = 0.02;
/// The least cost of a reported effect, in whole steps: the smaller an effect, the longer it is observed before it is
/// reported. Cores of one machine differ by some percent for seconds at a time, and no user can act on that.
const MIN_STEPS_LOST: f64 = 5.0;
/// The number of standard deviations by which a rank must be last more often than its turn over all steps: p < 1e-5.
const MIN_FREQUENCY_Z: f64 = 4.42;
/// The number of neighboring steps that count as one choice when the steps of a fault are chosen, because neighboring
/// steps are alike.
const CHOSEN_TOGETHER: usize = 25;

/// The settings that decide whether an effect is a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting<'a> {
    pub computed_on: ComputedOn,
    /// The share of all observed time, 0 to 1, below which an effect is a note.
    pub notable_share: f64,
    /// The steps that cannot be shown, in ascending order. None of them becomes an example step.
    pub hidden_steps: &'a [u64],
    /// Observed steps spread over the whole run, if the steps that are judged are the newest of more; else empty.
    pub course: &'a [&'a StepAnalysis],
    /// Whether the run is imported from files, so that no more steps will come.
    pub is_recorded: bool,
    /// Whether every rank's processors are known to be its host's own, so that no hypervisor gives them to others.
    pub is_on_bare_metal: bool,
    /// Whether only collectives are recorded, so that what ranks do between them is not known.
    pub has_only_collectives: bool,
}

impl Setting<'_> {
    fn can_show(&self, step: &StepAnalysis) -> bool {
        self.hidden_steps.binary_search(&step.step.0).is_err()
    }
}

/// The default share of time from which an effect is a verdict instead of a note: 5 %.
pub const NOTABLE_SHARE: f64 = 0.05;

/// Verdicts and notes. In each list, the effects that are active or recurring come before the resolved ones, and each
/// group is ordered worst first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Findings {
    /// The effects that cost a notable share of the time.
    pub(crate) verdicts: Vec<Finding>,
    /// The effects that cost little.
    pub(crate) notes: Vec<Finding>,
}

/// Finds all verdicts over `steps`, which must be observed steps in ascending order, and the reason why there can be none,
/// if so. A recorded job of few steps is judged by its collectives ([`few`]).
pub(crate) fn judge(steps: &[&StepAnalysis], setting: &Setting<'_>) -> (Findings, Option<Missing>) {
    let (mut found, missing) = judge_ranks(steps, setting);
    if setting.is_recorded && found.verdicts.is_empty() {
        found.verdicts.extend(everyone::idle(steps).filter(|idle| is_notable(idle, steps, setting)));
        found.sort();
    }
    (found, missing)
}

/// Finds the verdicts that compare ranks or steps.
fn judge_ranks(steps: &[&StepAnalysis], setting: &Setting<'_>) -> (Findings, Option<Missing>) {
    if few::applies(steps.len(), setting) {
        return match few::judge(steps, setting) {
            Ok(findings) => (findings, None),
            Err(missing) => (Findings::default(), Some(missing)),
        };
    }
    let mut found = verdicts(steps, setting);
    if setting.is_recorded {
        few::complete(&mut found, steps, setting);
    }
    (found, insufficient(steps.len()))
}

/// Returns why a recorded job has no verdict although a rank is late: nothing shows whether ranks compute while their collectives
/// run. `function` is that of most of these collectives. `None` if no rank is late.
pub(crate) fn late_at_unknown_cost(steps: &[&StepAnalysis], function: Function) -> Option<Missing> {
    few::late_at_unknown_cost(steps, function)
}

/// Finds all verdicts over `steps`, which must be observed steps in ascending order.
fn verdicts(steps: &[&StepAnalysis], setting: &Setting<'_>) -> Findings {
    if steps.len() < MIN_STEPS {
        return Findings::default();
    }
    // A rank alone is late for no other.
    let is_alone = ranks_of(steps) < 2;
    let claims: Vec<Option<Claim>> =
        steps.iter().map(|step| Claim::new(step).filter(|_| !is_alone)).collect();
    let accounts: Vec<StepAccount> = steps.iter().filter_map(|step| StepAccount::new(step)).collect();
    if accounts.len() < steps.len() {
        return Findings::default();
    }
    let window = Window::new(steps, &accounts);
    let late: Vec<Accusation> =
        suspects(&claims).flat_map(|ranks| accusations(steps, &claims, ranks, setting)).collect();
    let is_explained = |at: usize, ranks: &[usize], nanos: f64| {
        late.iter().any(|late| !late.is_stalls() && late.explains(at, ranks, nanos))
    };
    let mut all = match setting.has_only_collectives {
        true => Vec::new(),
        false => window.findings(is_explained, setting),
    };
    let mut late: Vec<Finding> =
        late.into_iter().filter(|late| !late.is_part_of(&all)).map(|late| late.finding).collect();
    // What grows does so over hours, and the newest steps are minutes.
    let course = if setting.course.len() >= trend::MIN_POINTS { setting.course } else { steps };
    let grows = Grows::new(course);
    if let Some(grows) = &grows {
        late.iter_mut().for_each(|finding| grows.tell(finding, steps, course));
    }
    let lost: u64 = late.iter().map(|late| late.verdict.lost_nanos()).sum();
    let mut shared = everyone::verdicts(&window, lost / steps.len() as u64, &all, setting);
    all.extend(late);
    if let Some(growth) = grows.and_then(|grows| grows.everyone(&window, course, setting)) {
        shared.retain(|other| !grows::explains(&growth, other));
        all.push(growth);
    }
    all.extend(shared);
    let (verdicts, notes) = all.into_iter().partition(|finding| is_notable(finding, steps, setting));
    let mut findings = Findings { verdicts, notes };
    findings.sort();
    findings
}

fn ranks_of(steps: &[&StepAnalysis]) -> usize {
    steps.iter().map(|step| step.ranks.len()).max().unwrap_or(0)
}

impl Findings {
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Finding> {
        self.verdicts.iter_mut().chain(&mut self.notes)
    }

    /// Puts what cost most time first, whether it is over or not.
    pub(crate) fn sort(&mut self) {
        for list in [&mut self.verdicts, &mut self.notes] {
            list.sort_by_key(|finding| std::cmp::Reverse(finding.verdict.lost_nanos()));
        }
    }

    /// Puts what cost the largest share of the wall time first. Findings on steps cost their share of `observed` nanoseconds, and
    /// these stand for all steps of the run.
    pub(crate) fn sort_by_share(&mut self, goodput: &Goodput, observed: f64) {
        let outside =
            [TimeUse::Launch, TimeUse::Setup, TimeUse::Recovery, TimeUse::Repeated, TimeUse::Ending];
        let in_steps = 1.0 - outside.into_iter().map(|time_use| goodput.share(time_use)).sum::<f64>();
        let share = |finding: &Finding| match finding.verdict.cause.is_outside_steps() {
            true => finding.verdict.cost_share,
            false => finding.verdict.lost_nanos() as f64 / observed.max(1.0) * in_steps,
        };
        for list in [&mut self.verdicts, &mut self.notes] {
            list.sort_by(|a, b| share(b).total_cmp(&share(a)));
        }
    }

    /// Makes notes of the verdicts that later evidence showed to be the unsteadiness of a shared machine, and verdicts of the notes that
    /// it showed to be the job's own code, if they are notable.
    pub(crate) fn settle(&mut self, steps: &[&StepAnalysis], setting: &Setting<'_>) {
        let is_own = |finding: &Finding| {
            finding.reason == Some(Reason::OwnCode) && is_notable(finding, steps, setting)
        };
        let take = std::mem::take::<Vec<Finding>>;
        let (scatter, verdicts) =
            take(&mut self.verdicts).into_iter().partition(|finding| finding.is_scatter);
        let (own, notes): (Vec<Finding>, _) = take(&mut self.notes).into_iter().partition(is_own);
        (self.verdicts, self.notes) = (verdicts, notes);
        self.verdicts.extend(own);
        self.notes.extend::<Vec<Finding>>(scatter);
        self.sort();
    }
}

/// A finding against ranks, with the steps that it explains.
struct Accusation {
    finding: Finding,
    ranks: Vec<usize>,
    /// Indices into the observed steps, ascending.
    at: Vec<usize>,
    /// The median saving in these steps, in nanoseconds.
    usual_saving: f64,
}

impl Accusation {
    /// Returns true if one of these findings on the same ranks says more exactly what the accusation says: that a few steps lose the time.
    /// The accusation spreads it over all its steps, most of which lose far less than it costs.
    ///
    /// Stalls are those steps of such a finding that could be attributed to the ranks.
    fn is_part_of(&self, now_and_then: &[Finding]) -> bool {
        let verdict = &self.finding.verdict;
        if self.is_stalls() {
            return now_and_then.iter().any(|other| {
                let is_larger = 2 * other.verdict.lost_nanos() >= verdict.lost_nanos();
                other.verdict.culprit == verdict.culprit && !other.verdict.cause.is_pause() && is_larger
            });
        }
        let lasts = 2.0 * self.usual_saving >= verdict.cost_nanos_per_step as f64;
        let is_of_it = |other: &Finding| other.verdict.culprit == verdict.culprit;
        !lasts && now_and_then.iter().any(is_of_it)
    }

    fn is_stalls(&self) -> bool {
        self.finding.verdict.recurrence.is_some()
    }

    /// Returns true if it explains most of the time that these ranks cost the step with this index.
    fn explains(&self, at: usize, ranks: &[usize], nanos: f64) -> bool {
        let is_of_its_size = 2.0 * self.finding.verdict.cost_nanos_per_step as f64 >= nanos;
        is_of_its_size && self.ranks == ranks && self.at.binary_search(&at).is_ok()
    }
}

/// Returns the ranks, or groups of ranks, that enough steps are attributed to for a closer examination.
fn suspects(claims: &[Option<Claim>]) -> impl Iterator<Item = &[usize]> {
    let mut held: BTreeMap<&[usize], usize> = BTreeMap::new();
    for claim in claims.iter().flatten().filter(|claim| claim.nanos > 0.0) {
        *held.entry(&claim.ranks).or_default() += 1;
    }
    held.into_iter().filter(|(_, steps)| *steps >= episodes::CHANGE_STEPS).map(|(ranks, _)| ranks)
}

/// Returns true if an effect has cost a notable share of all observed time. An active effect is notable already if it
/// costs that share of the steps that have it, unless its cause is the processor.
fn is_notable(finding: &Finding, steps: &[&StepAnalysis], setting: &Setting<'_>) -> bool {
    if finding.is_scatter {
        return false;
    }
    let verdict = &finding.verdict;
    let total: u64 = steps.iter().map(|step| step.period_nanos()).sum();
    let lasts = verdict.state == VerdictState::Active && verdict.cause != Cause::Processor;
    verdict.lost_nanos() as f64 >= setting.notable_share * total as f64
        || (lasts && verdict.cost_share >= setting.notable_share)
}

/// Returns the reason why there can be no verdict, or `None` if there are enough steps for one.
#[must_use]
pub fn insufficient(steps: usize) -> Option<Missing> {
    (steps < MIN_STEPS).then_some(Missing::TooFewSteps { observed: steps as u64, needed: MIN_STEPS as u64 })
}

/// Returns one verdict for each fault of `ranks`.
fn accusations(
    steps: &[&StepAnalysis],
    claims: &[Option<Claim>],
    ranks: &[usize],
    setting: &Setting<'_>,
) -> Vec<Accusation> {
    let savings: Vec<f64> =
        steps.iter().zip(claims).map(|(step, claim)| claim::unpaused(step, claim.as_ref(), ranks)).collect();
    let usual_step = stats::median(steps.iter().map(|step| step.period_nanos() as f64)).unwrap_or(0.0);
    let episodes = episodes::episodes(&savings, usual_step);
    let mut is_healthy = vec![true; steps.len()];
    episodes.iter().for_each(|episode| is_healthy[episode.clone()].fill(false));
    let faults = apart::faults(episodes, steps, ranks);
    let total: f64 = steps.iter().map(|step| step.period_nanos() as f64).sum();
    let watched = Watched { ranks, steps, savings: &savings, claims, is_healthy: &is_healthy, usual_step };
    let stalls = watched.stalls(setting.notable_share * total, MIN_FREQUENCY_Z);
    let is_last = |at: usize| claims[at].as_ref().is_some_and(|claim| claim.nanos_against(ranks) > 0.0);
    let is_last: Vec<bool> = (0..steps.len()).map(is_last).collect();
    let suspicion = Suspicion { ranks, savings, is_last, is_healthy };
    let accusation = |at: Vec<usize>, finding| {
        let usual_saving = stats::median(at.iter().map(|&at| suspicion.savings[at])).unwrap_or(0.0);
        Accusation { finding, ranks: ranks.to_vec(), at, usual_saving }
    };
    let stalls = suspicion.gather(&stalls, steps).and_then(|fault| {
        let finding = suspicion.accuse(&fault, steps, setting)?;
        let times = Times { at: fault.episodes.to_vec(), total: finding.verdict.lost_nanos() as f64 };
        Some(accusation(fault.at, stalled(finding, &times, steps, usual_step, total)))
    });
    let faults = faults.iter().filter_map(|fault| {
        let at = fault.iter().cloned().flatten().collect();
        Some(accusation(at, suspicion.charge(fault, steps, setting)?))
    });
    faults.chain(stalls).collect()
}

/// Turns a finding into one about stalls. Most steps have no stall, so the cost per day is their share of all observed time, `total`
/// nanoseconds. A stall in the newest step does not make the fault a present one.
fn stalled(finding: Finding, times: &Times, steps: &[&StepAnalysis], usual_step: f64, total: f64) -> Finding {
    let ranks = ranks_of(steps);
    let mut verdict = finding.verdict;
    if verdict.state == VerdictState::Active {
        (verdict.state, verdict.persistence) = (VerdictState::Resolved, Some(Persistence::Transient));
    }
    let recurrence = times.recurrence(steps, total);
    if recurrence.nanos as f64 / 1e9 >= hang::limit_seconds(usual_step / 1e9) {
        verdict.cause = Cause::Hang;
    }
    verdict.device_hours_per_day = hours_per_day(recurrence.share_of_time, verdict.state, ranks);
    (verdict.onset, verdict.recurrence) = (None, Some(recurrence));
    Finding { verdict, statement: Statement::NowAndThen { ranks }, ..finding }
}

/// The facts about the suspected ranks in each step, before a cause is sought.
struct Suspicion<'a> {
    ranks: &'a [usize],
    /// The saving from fixing the suspects, in nanoseconds.
    savings: Vec<f64>,
    /// Whether the suspects were last.
    is_last: Vec<bool>,
    /// Whether the step is outside every fault of the suspects.
    is_healthy: Vec<bool>,
}

/// The steps of one fault.
struct Fault<'a> {
    /// Its episodes, as ranges of indices into the observed steps.
    episodes: &'a [Range<usize>],
    /// The indices of its steps.
    at: Vec<usize>,
    steps: Vec<&'a StepAnalysis>,
    cost: Cost,
}

impl Suspicion<'_> {
    /// Returns the verdict on one fault, whose episodes are ranges of indices into `steps`. Returns `None` if chance
    /// explains the fault, or if it is too small to report.
    fn charge(
        &self,
        episodes: &[Range<usize>],
        steps: &[&StepAnalysis],
        setting: &Setting<'_>,
    ) -> Option<Finding> {
        let fault = self.gather(episodes, steps)?;
        let chosen = self.chosen(&fault.at);
        let is_obvious = chosen.is_obvious(fault.cost, &self.savings);
        let is_beyond_chance = chosen.is_beyond_chance(steps[0].ranks.len());
        if !(is_obvious || is_beyond_chance && is_worth_reporting(steps, &fault.steps, fault.cost)) {
            return None;
        }
        self.accuse(&fault, steps, setting)
    }

    /// Returns the steps of a fault and what it costs; `None` without steps.
    fn gather<'s>(&self, episodes: &'s [Range<usize>], steps: &[&'s StepAnalysis]) -> Option<Fault<'s>> {
        let at: Vec<usize> = episodes.iter().cloned().flatten().collect();
        let steps: Vec<&StepAnalysis> = at.iter().map(|&at| steps[at]).collect();
        let cost = Cost::new(&steps, at.iter().map(|&at| self.savings[at]))?;
        Some(Fault { episodes, at, steps, cost })
    }

    /// Returns the verdict on one fault that chance does not explain.
    fn accuse(&self, fault: &Fault<'_>, steps: &[&StepAnalysis], setting: &Setting<'_>) -> Option<Finding> {
        let (ranks, &Fault { episodes, cost, .. }) = (self.ranks, fault);
        let (bad, bad_steps) = (&fault.at, fault.steps.as_slice());
        let last_in = bad.iter().filter(|&&at| self.is_last[at]).count();
        let persistence = course::persistence(episodes, steps.len());
        let state = course::state(episodes, steps.len());
        let mut excess = Excess::new(bad_steps, ranks)?;
        excess.is_processors = processor::explains(&excess, persistence, cost, setting);
        let onset = course::onset(steps, ranks, episodes);
        let case = Case { ranks, steps, bad: bad_steps, last_in, excess, episodes, onset };
        let verdict = Verdict {
            state,
            cost_nanos_per_step: cost.nanos as u64,
            cost_share: cost.share,
            affected_steps: bad.len() as u64,
            device_hours_per_day: hours_per_day(cost.share, state, steps[0].ranks.len()),
            confidence: confidence(&case),
            example_step: example_step(bad_steps, bad, &self.savings, setting),
            persistence: Some(persistence),
            steps: case.range(),
            onset,
            ..Verdict::new(culprit(ranks), case.excess.cause())
        };
        let mut finding = Finding::new(verdict, Statement::Late { episodes: episodes.len() });
        finding.is_scatter =
            finding.verdict.cause == Cause::Processor && processor::is_scatter(persistence, setting);
        (finding.evidence, finding.counter_evidence) = (case.evidence(), case.counter_evidence());
        Some(finding)
    }

    /// Counts how often the suspects were last, leaving out the steps with other faults of theirs.
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

/// Returns the cost of one day with the fault, in hours of one rank; `None` once the fault is resolved.
pub(crate) fn hours_per_day(share: f64, state: VerdictState, ranks: usize) -> Option<f64> {
    (state != VerdictState::Resolved).then_some(share * ranks as f64 * 24.0)
}

fn is_worth_reporting(steps: &[&StepAnalysis], bad: &[&StepAnalysis], cost: Cost) -> bool {
    let lost = cost.share * bad.len() as f64;
    lost >= MIN_COST_SHARE * steps.len() as f64 && lost >= MIN_STEPS_LOST
}

/// How often the suspects were last: in the steps of the fault, and in all steps but those of their other faults.
struct Chosen {
    last_in: usize,
    bad: usize,
    last_in_all: usize,
    all: usize,
}

impl Chosen {
    fn is_beyond_chance(&self, ranks: usize) -> bool {
        let turns = |times, total| excess_frequency_z(times, total, ranks);
        let turn = 1.0 / ranks as f64;
        self.last_in as f64 >= (turn + MIN_LAST_BEYOND_TURN * (1.0 - turn)) * self.bad as f64
            && (turns(self.last_in_all, self.all) >= MIN_FREQUENCY_Z
                || turns(self.last_in, self.bad) >= min_frequency_z_of_chosen(self.bad, self.all))
    }

    fn is_obvious(&self, cost: Cost, savings: &[f64]) -> bool {
        let changes = savings.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        // For normal scatter, the median |difference| of neighbors is 0.954 standard deviations.
        let deviation = stats::median(changes).unwrap_or(f64::MAX) / 0.954;
        self.bad >= OBVIOUS_STEPS
            && self.last_in as f64 >= OBVIOUS_LAST_SHARE * self.bad as f64
            && cost.share >= OBVIOUS_SHARE
            && cost.nanos >= OBVIOUS_DEVIATIONS * deviation
    }
}

/// Returns how far `times` exceeds the expectation of one time in `ranks`, in standard deviations of the binomial
/// distribution.
fn excess_frequency_z(times: usize, steps: usize, ranks: usize) -> f64 {
    let (n, p) = (steps as f64, 1.0 / ranks as f64);
    (times as f64 - n * p) / (n * p * (1.0 - p)).sqrt()
}

/// Returns the z score that `chosen` of `watched` steps must reach: [`MIN_FREQUENCY_Z`], raised because the steps were
/// chosen for the rank's being last in them. One of two equal ranks is last in 15 of 25 steps one time in five, so
/// among many blocks of steps some always look like a fault. With N ways to choose the blocks, the required p is N
/// times smaller (Bonferroni), which makes the square of z larger by 2 ln N.
fn min_frequency_z_of_chosen(chosen: usize, watched: usize) -> f64 {
    let (blocks, chosen) = (watched.div_ceil(CHOSEN_TOGETHER), chosen.div_ceil(CHOSEN_TOGETHER));
    MIN_FREQUENCY_Z.mul_add(MIN_FREQUENCY_Z, 2.0 * stats::ln_choose(blocks, chosen)).sqrt()
}

fn culprit(ranks: &[usize]) -> Culprit {
    match ranks {
        [rank] => Culprit::Rank(*rank as u32),
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

/// Returns the step with the median saving, as a typical example; `None` if no step can be shown.
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
pub(crate) mod tests;
