//! Verdicts on all ranks: costs that every rank pays alike.

use wire::live::Part;
use wire::views::what_if::Phase;
use wire::views::{Cause, ChangePoint, ComputedOn, Confidence, Culprit, Verdict, VerdictState};

use super::course::dated;
use super::evidence::SHARED_CORES;
use super::excess::{CPU_EXPLAINS, Passes, Variation};
use super::longest::longest;
use super::now_and_then::{Window, are_long};
use super::{HIGH_CONFIDENCE_STEPS, Setting, hours_per_day, processor, ranks_of};
use crate::account::StepAccount;
use crate::change_point::change_point;
use crate::finding::{Doubt, Evidence, Finding, Risen, Segment, Statement};
use crate::overlap::Overlap;
use crate::replay::Replay;
use crate::stats;
use crate::step::{RankAnalysis, StepAnalysis};

/// The share of the step from which a cost of all ranks is worth a verdict.
pub(crate) const MIN_SHARE: f64 = 0.05;
/// The share of the step from which parameter updates are worth a verdict. Every training job has them.
const MIN_OPTIMIZER_SHARE: f64 = 0.25;
/// The share of the whole saving that evening out one phase must save for the phase to explain an imbalance.
const PHASE_EXPLAINS: f64 = 0.5;
/// The share of the whole saving that one rank must save for ranks not to take turns.
const ONE_RANK_EXPLAINS: f64 = 0.75;

/// The share of the steps from which a cost of all ranks is worth a verdict in a recording of few steps. Two of three recorded steps may
/// be unusual ones.
const CLEAR_SHARE: f64 = 0.2;
/// The least share of each single step that is so lost, as a part of [`CLEAR_SHARE`].
const CLEAR_IN_EACH: f64 = 0.5;

/// The least share of the time outside of phases that devices must be idle for it to be theirs.
const MOSTLY_IDLE: f64 = 0.5;

/// Steps with at least this many times as many backward passes as before have more work, and are not slower.
const MORE_PASSES: f64 = 1.5;

/// The share of slower compute by which steps must become slower too. Otherwise the additional compute was hidden.
const RISES_ALONG: f64 = 0.5;

/// Finds all verdicts on all ranks. `explained` is the cost that findings on ranks explain already, in nanoseconds per step, averaged
/// over all steps, and `now_and_then` are those on what most steps do not have. The newest step that can be shown becomes the example.
pub(super) fn verdicts(
    window: &Window<'_>,
    explained: u64,
    now_and_then: &[Finding],
    setting: &Setting<'_>,
) -> Vec<Finding> {
    let steps = window.steps;
    let shared = if setting.has_only_collectives { Vec::new() } else { shared(window, now_and_then) };
    let turn_nanos: f64 = shared.iter().map(|shared| shared.turn_nanos).sum();
    let mut found: Vec<Finding> = shared.into_iter().map(|shared| shared.finding).collect();
    found.extend(transfers(window));
    found.extend(turns(window, explained, turn_nanos, setting));
    found.extend(drift(steps, setting));
    let newest = steps.iter().rev().find(|step| setting.can_show(step)).map(|step| step.step.0);
    for finding in &mut found {
        finding.verdict.example_step = newest.filter(|&newest| newest >= finding.verdict.steps.0);
    }
    found
}

/// Finds what all ranks of a recorded job of few steps lose alike, if its share is clear: large, and not that of a single step.
pub(super) fn clear(steps: &[&StepAnalysis], setting: &Setting<'_>) -> Vec<Finding> {
    let accounts: Vec<StepAccount> = steps.iter().filter_map(|step| StepAccount::new(step)).collect();
    if setting.has_only_collectives || accounts.len() < steps.len() {
        return Vec::new();
    }
    let single_steps: Vec<Window<'_>> =
        (0..steps.len()).map(|at| Window::new(&steps[at..=at], &accounts[at..=at])).collect();
    let lost = |window: &Window<'_>, cause: Cause| -> f64 {
        let found = findings_on_all(window);
        found.filter(|finding| finding.verdict.cause == cause).map(|finding| finding.verdict.cost_share).sum()
    };
    let whole = Window::new(steps, &accounts);
    let is_clear = |finding: &Finding| {
        let verdict = &finding.verdict;
        let in_each =
            single_steps.iter().all(|window| lost(window, verdict.cause) >= CLEAR_IN_EACH * CLEAR_SHARE);
        verdict.cost_share >= CLEAR_SHARE && in_each
    };
    let mut found: Vec<Finding> = findings_on_all(&whole).filter(is_clear).collect();
    for finding in &mut found {
        finding.verdict.confidence = Confidence::Medium;
        finding.verdict.onset = None;
        (finding.verdict.persistence, finding.verdict.device_hours_per_day) = (None, None);
        finding.verdict.example_step =
            steps.iter().rev().find(|step| setting.can_show(step)).map(|step| step.step.0);
    }
    found
}

/// Builds a finding on all ranks over `steps`, all of which have the effect. Returns `None` if the effect costs too
/// little.
pub(crate) fn finding_on_all(
    steps: &[&StepAnalysis],
    cost: f64,
    cause: Cause,
    statement: Statement,
) -> Option<Finding> {
    let (first, last) = (steps.first()?, steps.last()?);
    let period =
        stats::mean(steps.iter().map(|step| step.period_nanos() as f64)).filter(|&mean| mean > 0.0)?;
    let share = cost.max(0.0) / period;
    let verdict = Verdict {
        cost_nanos_per_step: cost.max(0.0) as u64,
        cost_share: share,
        affected_steps: steps.len() as u64,
        device_hours_per_day: hours_per_day(share, VerdictState::Active, steps[0].ranks.len()),
        steps: (first.step.0, last.step.0),
        ..Verdict::new(Culprit::All, cause)
    };
    (share >= MIN_SHARE).then(|| Finding::new(verdict, statement))
}

/// A part of the step that takes every rank long.
struct Shared {
    finding: Finding,
    /// The part of its cost that the account books as uneven work, because ranks take turns at being slow in it, in nanoseconds per
    /// step.
    turn_nanos: f64,
}

/// Finds parts of the step, and transfers, that take every rank long.
fn findings_on_all(window: &Window<'_>) -> impl Iterator<Item = Finding> {
    shared(window, &[]).into_iter().map(|shared| shared.finding).chain(transfers(window))
}

/// Finds parts of the step that take every rank long: what the usual rank spends on them, without the long steps that `now_and_then`
/// explains.
fn shared(window: &Window<'_>, now_and_then: &[Finding]) -> Vec<Shared> {
    let parts: [(&[Part], Cause, Segment); 4] = [
        (&[Part::Input], Cause::Input, Segment::Input),
        (&[Part::H2d], Cause::H2d, Segment::H2d),
        (&[Part::Idle, Part::Other], Cause::Host, Segment::Other),
        (&[Part::Optimizer], Cause::Optimizer, Segment::Optimizer),
    ];
    parts
        .into_iter()
        .filter_map(|(parts, cause, segment)| {
            let ordinary = match now_and_then.iter().any(|finding| are_long(finding, parts)) {
                true => window.ordinary_steps(parts),
                false => (0..window.steps.len()).collect(),
            };
            shared_part(window, &ordinary, parts, cause, segment)
        })
        .collect()
}

/// Finds one part, by the steps with these indices.
fn shared_part(
    window: &Window<'_>,
    ordinary: &[usize],
    parts: &[Part],
    cause: Cause,
    segment: Segment,
) -> Option<Shared> {
    let nanos = |account: &StepAccount| parts.iter().map(|&part| account.usual(part)).sum::<f64>();
    let series: Vec<f64> = window.accounts.iter().map(nanos).collect();
    let turn_nanos = excess_of_turns(window, ordinary, parts);
    let cost = stats::mean(ordinary.iter().map(|&at| series[at]))? + turn_nanos;
    let mut finding = finding_on_all(window.steps, cost, cause, Statement::AllAlike)?;
    if cause == Cause::Optimizer && finding.verdict.cost_share < MIN_OPTIMIZER_SHARE {
        return None;
    }
    let steps = window.steps.len();
    finding.verdict.confidence =
        if steps >= HIGH_CONFIDENCE_STEPS { Confidence::High } else { Confidence::Medium };
    finding.verdict.onset = rise(window.steps, &series);
    // Only recordings show when devices are idle.
    let idle = stats::mean(window.accounts.iter().map(|account| account.usual(Part::Idle))).unwrap_or(0.0);
    let is_idle = segment == Segment::Other && idle >= MOSTLY_IDLE * cost;
    let segment = if is_idle { Segment::Idle } else { segment };
    finding
        .evidence
        .push(Evidence::OnUsualRank { segment, nanos: if is_idle { idle.min(cost) } else { cost } });
    if let Some(onset) = finding.verdict.onset {
        finding.evidence.push(Evidence::Rose { what: Risen::Part(segment), onset });
    }
    Some(Shared { finding, turn_nanos })
}

/// Returns how much longer parts take the rank that is usual over the window than the rank that is usual in each step, in
/// nanoseconds per step. The usual one of two ranks in a step is the faster one. If ranks take turns at being slow, each of them spends more.
fn excess_of_turns(window: &Window<'_>, ordinary: &[usize], parts: &[Part]) -> f64 {
    let nanos = |rank: usize| {
        let own = ordinary.iter().filter_map(|&at| window.steps[at].ranks.get(rank)?.as_ref());
        stats::mean(own.map(|own| parts.iter().map(|&part| own.part(part) as f64).sum::<f64>()))
    };
    let mean = |value: &dyn Fn(&StepAccount, Part) -> f64| {
        let nanos = |&at: &usize| parts.iter().map(|&part| value(&window.accounts[at], part)).sum::<f64>();
        stats::mean(ordinary.iter().map(nanos)).unwrap_or(0.0)
    };
    let usual = stats::lower_median((0..ranks_of(window.steps)).filter_map(nanos)).unwrap_or(0.0);
    let more = usual - mean(&StepAccount::usual);
    more.clamp(0.0, mean(&StepAccount::uneven))
}

/// Finds devices that are idle on all ranks of a recording, however few steps and ranks it has: that they are is recorded, and no
/// rank is compared with another.
pub(super) fn idle(steps: &[&StepAnalysis]) -> Option<Finding> {
    let accounts = steps.iter().filter_map(|step| StepAccount::new(step));
    let idle = stats::mean(accounts.map(|account| account.usual(Part::Idle)))?;
    let mut finding = finding_on_all(steps, idle, Cause::Host, Statement::AllAlike)?;
    finding.verdict.example_step = finding.verdict.steps.1.into();
    finding.evidence.push(Evidence::OnUsualRank { segment: Segment::Idle, nanos: idle });
    (finding.verdict.cost_share >= CLEAR_SHARE).then_some(finding)
}

/// Finds exposed transfers, unless a rank has no records: waiting for it would count as transfer. Where nothing shows whether ranks
/// compute during a part of the transfers, the cost is that of the rest.
fn transfers(window: &Window<'_>) -> Option<Finding> {
    let steps = window.steps;
    if steps.iter().any(|step| step.ranks.iter().any(Option::is_none)) {
        return None;
    }
    let is_known =
        Overlap::new(steps.iter().flat_map(|step| step.present().map(|(_, rank)| rank))).is_known();
    let usual = |step: &StepAnalysis, value: fn(&RankAnalysis) -> u64| {
        stats::lower_median(step.present().map(|(_, rank)| value(rank) as f64)).unwrap_or(0.0)
    };
    let assumed = |step: &StepAnalysis| match is_known {
        true => 0.0,
        false => usual(step, |rank| rank.assumed_exposed_nanos),
    };
    let series: Vec<f64> = window
        .accounts
        .iter()
        .zip(steps)
        .map(|(account, step)| (account.transfer - assumed(step)).max(0.0))
        .collect();
    let exposed = stats::trimmed_mean(series.iter().copied(), 0.02)?;
    let tail = stats::median(steps.iter().filter_map(|step| mean_tail(step))).unwrap_or(0.0);
    let onset = rise(steps, &series);
    let mut finding = finding_on_all(steps, exposed, Cause::Communication, Statement::AllAlike)?;
    finding.evidence = vec![Evidence::ExposedTransfer { nanos: exposed }];
    finding.evidence.extend(is_known.then_some(Evidence::Tail { nanos: tail, last: None }));
    finding.evidence.extend(onset.map(|onset| Evidence::Rose { what: Risen::ExposedTransfer, onset }));
    finding.counter_evidence = vec![Doubt::AssumesAllHidden];
    let unclear = |rank: &RankAnalysis| rank.assumed_exposed_nanos + rank.assumed_hidden_nanos;
    let nanos = stats::mean(steps.iter().map(|step| usual(step, unclear))).unwrap_or(0.0);
    finding.counter_evidence.extend((!is_known).then_some(Doubt::MoreMayBeExposed { nanos }));
    finding.verdict.onset = onset;
    Some(finding)
}

/// Returns the replays that are close enough to their steps, if most are.
fn trusted<'a>(steps: &[&'a StepAnalysis]) -> Option<Vec<&'a Replay>> {
    let replays: Vec<&Replay> =
        steps.iter().filter_map(|step| step.replay.as_ref()).filter(|replay| replay.is_trusted()).collect();
    (replays.len() * 2 >= steps.len()).then_some(replays)
}

/// Finds the rank whose own compute explains what uneven ranks cost, in a job with groups ([`super::longest`]).
pub(super) fn longest_of_group(steps: &[&StepAnalysis]) -> Option<Finding> {
    let whole = trusted(steps)?.into_iter().map(|replay| f64::from(replay.alike_nanos));
    let whole = stats::trimmed_mean(whole, 0.02)?;
    let longest = longest(steps).filter(|longest| longest.nanos >= PHASE_EXPLAINS * whole)?;
    let mut finding =
        finding_on_all(steps, whole, Cause::Compute, Statement::LongestOfGroup { nanos: longest.nanos })?;
    finding.verdict.culprit = Some(Culprit::Rank(longest.rank as u32));
    finding.evidence.push(Evidence::LongestOfGroup {
        among: longest.among,
        longest: longest.steps,
        steps: steps.len(),
        chance: longest.chance,
    });
    finding.evidence.push(Evidence::EvenRanksSave { nanos: whole });
    finding.counter_evidence.push(Doubt::SameWorkAssumed);
    Some(finding)
}

/// Finds ranks that take turns at being last, or one of a group that does not. Findings on ranks explain `explained` nanoseconds per
/// step of it, and findings on all ranks explain `turn_nanos`.
fn turns(window: &Window<'_>, explained: u64, turn_nanos: f64, setting: &Setting<'_>) -> Option<Finding> {
    let steps = window.steps;
    // In a live run, compute may be what lies between collectives, and have waits in it.
    if setting.is_recorded
        && explained == 0
        && let Some(finding) = longest_of_group(steps)
    {
        return Some(finding);
    }
    let replays = trusted(steps)?;
    let mean = |value: &dyn Fn(&Replay) -> f64| {
        stats::trimmed_mean(replays.iter().map(|replay| value(replay)), 0.02).unwrap_or(0.0)
    };
    let evened: Vec<(Phase, f64)> =
        Phase::ALL.into_iter().map(|phase| (phase, mean(&|replay| replay.phase(phase)))).collect();
    let compute =
        mean(&|replay| replay.phase(Phase::Forward).max(0.0) + replay.phase(Phase::Backward).max(0.0));
    // Evening out a pause leaves a part of it on each rank. The account takes pauses out as a whole.
    let uneven = stats::trimmed_mean(window.accounts.iter().map(|account| account.uneven.nanos), 0.02)?;
    let whole = mean(&|replay| replay.alike_nanos.into()).min(uneven);
    let elsewhere = explained as f64 + turn_nanos;
    let cost = whole - elsewhere;
    // One rank whose fix alone saves most takes no turns with others, however few steps there are to name it.
    let rank_saving = |rank: usize| mean(&|replay| replay.ranks.get(rank).map_or(0.0, |&nanos| nanos.into()));
    let mut ranks = 0..replays.iter().map(|replay| replay.ranks.len()).max().unwrap_or(0);
    let mostly = ranks.find(|&rank| explained == 0 && rank_saving(rank) >= ONE_RANK_EXPLAINS * whole);
    // What collectives say of a recorded job names such a rank.
    if mostly.is_some() && setting.is_recorded {
        return None;
    }
    let variation = variation(steps);
    let saving =
        |wanted: Phase| evened.iter().find(|(phase, _)| *phase == wanted).map_or(0.0, |(_, nanos)| *nanos);
    let off = off_processor(steps);
    let varies = variation.filter(Variation::is_of_work);
    let cause = if off.is_some() {
        Cause::Host
    } else if compute >= PHASE_EXPLAINS * whole && varies.is_some() {
        Cause::MoreWork
    } else if saving(Phase::Input) >= PHASE_EXPLAINS * whole {
        Cause::Input
    } else if saving(Phase::Other) >= PHASE_EXPLAINS * whole {
        Cause::Host
    } else {
        Cause::Unknown
    };
    let statement = match mostly {
        Some(rank) => Statement::MostlyFor { rank: rank as u32 },
        None => Statement::Turns { kept_off_processors: off.is_some() },
    };
    let mut finding = finding_on_all(steps, cost, cause, statement)?;
    // The batches of a job and its input can be evened out. That its ranks share a machine is how it is run.
    finding.is_scatter = mostly.is_some() || !matches!(cause, Cause::MoreWork | Cause::Input);
    finding.evidence.push(Evidence::EvenRanksSave { nanos: whole });
    let worth_a_line = evened.iter().filter(|(_, nanos)| *nanos > 0.2 * whole);
    finding.evidence.extend(worth_a_line.map(|&(phase, nanos)| Evidence::EvenPhaseSaves { phase, nanos }));
    let varies = varies.filter(|_| cause == Cause::MoreWork);
    finding.evidence.extend(varies.map(|variation| Evidence::WorkOfRanksVaries(variation.joint())));
    finding.evidence.extend(off.map(|share| Evidence::RanksOffProcessor { share }));
    if elsewhere > 0.0 {
        finding.counter_evidence.push(Doubt::Explained { nanos: elsewhere });
    }
    Some(finding)
}

/// Returns the share of compute time that ranks were off the processor, if it is large; `None` also if processor time
/// is not known, as on GPUs.
fn off_processor(steps: &[&StepAnalysis]) -> Option<f64> {
    let off = steps.iter().flat_map(|step| step.present()).filter_map(|(_, rank)| {
        let compute = rank.compute_nanos as f64;
        (compute > 0.0).then_some(1.0 - rank.compute_processor_nanos()? as f64 / compute)
    });
    stats::median(off).filter(|off| *off >= SHARED_CORES)
}

/// Finds compute that became slower on all ranks at once: a throttled device, a noisy neighbor, a changed input. If
/// steps did not become slower too, it costs nothing. The records may then only show better what ranks do while they
/// wait, in a job that marks no phases.
fn drift(steps: &[&StepAnalysis], setting: &Setting<'_>) -> Option<Finding> {
    let compute = |step: &StepAnalysis| {
        stats::median(step.present().map(|(_, rank)| rank.compute_nanos as f64)).unwrap_or(0.0)
    };
    let series: Vec<f64> = steps.iter().map(|step| compute(step)).collect();
    let onset = rise(steps, &series)?;
    let slower = onset.after_nanos - onset.before_nanos;
    if step_rise(steps, onset.step) < RISES_ALONG * slower {
        return None;
    }
    let began = steps.partition_point(|step| step.step.0 < onset.step);
    // Steps with more passes are longer, not slower: a job may average its models in every step at first, and every few steps later.
    if backward_passes(&steps[began..]) >= MORE_PASSES * backward_passes(&steps[..began]).max(1.0) {
        return None;
    }
    // The median of few ranks rises with one of them.
    if rise_of_most_ranks(steps, began) < RISES_ALONG * slower {
        return None;
    }
    let on_processor = processor_rise(steps, began).filter(|rise| *rise < CPU_EXPLAINS * slower);
    let is_processors =
        setting.computed_on == ComputedOn::Cpu && slower < processor::ALL_VARY_BY * onset.before_nanos;
    let cause = match on_processor {
        Some(_) => Cause::Host,
        None if is_processors => Cause::Processor,
        None => Cause::Compute,
    };
    let statement = Statement::Slower { share: slower / onset.before_nanos };
    let mut finding = finding_on_all(&steps[began..], slower, cause, statement)?;
    finding.evidence.push(Evidence::Rose { what: Risen::Compute, onset });
    finding.evidence.extend(on_processor.map(|nanos| Evidence::ProcessorTimeOfAll { nanos }));
    finding.counter_evidence.extend(match cause {
        Cause::Host => None,
        Cause::Processor => Some(Doubt::ProcessorsVary),
        _ => Some(Doubt::JobMayHaveChanged),
    });
    finding.verdict.onset = Some(onset);
    Some(finding)
}

/// Returns the number of backward passes of the median step. Waits divide a pass, as in FSDP.
fn backward_passes(steps: &[&StepAnalysis]) -> f64 {
    let passes = steps.iter().flat_map(|step| step.present()).map(|(_, rank)| rank.backward_passes.into());
    stats::median(passes).unwrap_or(0.0)
}

/// Returns how much more processor time the median rank's compute took from the step at index `began` on, in
/// nanoseconds; `None` if processor time is not known, as on GPUs.
fn processor_rise(steps: &[&StepAnalysis], began: usize) -> Option<f64> {
    let nanos = |step: &&StepAnalysis| {
        stats::median(step.present().filter_map(|(_, rank)| Some(rank.compute_processor_nanos()? as f64)))
    };
    let median = |steps: &[&StepAnalysis]| stats::median(steps.iter().filter_map(nanos));
    Some(median(&steps[began..])? - median(&steps[..began])?)
}

/// Returns how much longer three quarters of the ranks compute from the step at index `began` on, at least, in nanoseconds.
fn rise_of_most_ranks(steps: &[&StepAnalysis], began: usize) -> f64 {
    let nanos = |step: &&StepAnalysis| {
        let mut nanos: Vec<u64> = step.present().map(|(_, rank)| rank.compute_nanos).collect();
        nanos.sort_unstable();
        nanos.get(nanos.len().saturating_sub(1) / 4).map(|&nanos| nanos as f64)
    };
    let median = |steps: &[&StepAnalysis]| stats::median(steps.iter().filter_map(nanos));
    median(&steps[began..]).zip(median(&steps[..began])).map_or(0.0, |(after, before)| after - before)
}

/// Returns how much longer the median step is from step `step` on, in nanoseconds.
fn step_rise(steps: &[&StepAnalysis], step: u64) -> f64 {
    let (before, after): (Vec<_>, Vec<_>) = steps.iter().partition(|analysis| analysis.step.0 < step);
    let median =
        |steps: Vec<&&StepAnalysis>| stats::median(steps.into_iter().map(|step| step.local_nanos as f64));
    median(after).zip(median(before)).map_or(0.0, |(after, before)| after - before)
}

/// Returns the change point of `series` if it is a verified rise by a share that matters.
fn rise(steps: &[&StepAnalysis], series: &[f64]) -> Option<ChangePoint> {
    let change = change_point(series)?;
    let onset = dated(steps, change, change.before, change.after);
    (onset.verified && onset.after_nanos >= (1.0 + MIN_SHARE) * onset.before_nanos).then_some(onset)
}

/// Computes how forward and backward of each rank vary around the rank's own means, over all ranks.
fn variation(steps: &[&StepAnalysis]) -> Option<Variation> {
    let ranks = steps.iter().map(|step| step.ranks.len()).max()?;
    let passes = |rank: usize| -> Vec<Passes> {
        steps.iter().filter_map(|step| step.ranks.get(rank)?.as_deref()).map(Passes::new).collect()
    };
    let mut all = Vec::new();
    for own in (0..ranks).map(passes) {
        if let Some(means) = Passes::means(&own) {
            // Each rank is scaled by its own means, so a slow rank adds no correlation.
            all.extend(own.iter().map(|passes| passes.relative_to(means)));
        }
    }
    Variation::new(&all)
}

fn mean_tail(step: &StepAnalysis) -> Option<f64> {
    stats::mean(step.present().filter_map(|(_, rank)| rank.tail_nanos.map(|nanos| nanos as f64)))
}
