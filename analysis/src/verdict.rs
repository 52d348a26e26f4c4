//! Verdicts (METRICS.md, "what-if" and "verdict"): who costs the run time, why, how much, and how one knows.
//!
//! A rank's *own work* in a step is its step time less what it spent on collectives in the open, but for
//! transfers that took it longer than the median rank: that is what the others wait for. Fixing rank w saves, in one step, what its own work exceeds the longest of the others
//! by. Steps are judged in blocks, so that a fault that came and went is dated and its cost is not diluted
//! into nothing; a block only counts against a rank that was last in most of its steps, because in a healthy
//! run everyone is last sometimes. None of this needs clocks.

mod episodes;
mod everyone;

use std::collections::BTreeSet;

use wire::live::Part;
use wire::views::{Cause, Confidence, Culprit, Verdict};

use crate::frontier;
use crate::stats;
use crate::step::{RankAnalysis, StepAnalysis};
use episodes::Margin;

/// Observed steps needed before a rank is named.
const LEAST_STEPS: usize = episodes::BLOCK * episodes::LEAST_BLOCKS;
/// And before one is sure.
const HIGH_CONFIDENCE_STEPS: usize = 2 * LEAST_STEPS;
/// Of the savings of the bad steps, this share is left out at either end: a step that the machine spoilt for
/// some other reason says nothing about the rank.
const TRIM: f64 = 0.1;
/// A verdict is given from this share of the step time on.
pub(crate) const LEAST_COST_SHARE: f64 = 0.02;
/// Processor time must explain this much of a compute excess, else the thread was kept off the processor.
const CPU_EXPLAINS: f64 = 0.5;
/// Forward and backward that rise and fall together: more work, not a slow device.
const MORE_WORK_CORRELATION: f64 = 0.9;

/// All verdicts over `steps` (observed ones, in order), worst first.
#[must_use]
pub fn verdicts(steps: &[&StepAnalysis]) -> Vec<Verdict> {
    let ranks = steps.iter().map(|step| step.ranks.len()).max().unwrap_or(0);
    if ranks < 2 || steps.len() < LEAST_STEPS {
        return Vec::new();
    }
    let margins: Vec<Option<Margin>> = steps.iter().map(|step| Margin::of(step)).collect();
    let suspects: BTreeSet<usize> = margins.iter().flatten().map(|margin| margin.rank).collect();
    let mut verdicts: Vec<Verdict> =
        suspects.into_iter().filter_map(|rank| against_rank(steps, &margins, rank)).collect();
    verdicts.extend(everyone::verdicts(steps));
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

fn against_rank(steps: &[&StepAnalysis], margins: &[Option<Margin>], rank: usize) -> Option<Verdict> {
    let bad = episodes::bad_steps(steps, margins, rank)?;
    let bad_steps: Vec<&StepAnalysis> = bad.iter().map(|&at| steps[at]).collect();
    let savings: Vec<f64> = bad.iter().map(|&at| episodes::saving(&margins[at], rank) as f64).collect();
    let last_in = savings.iter().filter(|&&saved| saved > 0.0).count();
    let usual = stats::trimmed_mean(savings.iter().copied(), TRIM)?;
    let cost = (usual * bad_steps.len() as f64 / steps.len() as f64) as u64;
    let share = cost_share(cost, steps);
    if share < LEAST_COST_SHARE {
        return None;
    }
    let excess = Excess::of(&bad_steps, rank)?;
    let last_share = last_in as f64 / bad_steps.len() as f64;
    let confidence = if bad_steps.len() >= HIGH_CONFIDENCE_STEPS && last_share >= 0.8 && excess.is_clear() {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let ranks = steps[0].ranks.len();
    let mut verdict = Verdict {
        culprit: Some(Culprit::Rank(rank as u32)),
        cause: excess.cause(),
        cost_ns_per_step: cost,
        cost_share: share,
        gpu_hours_per_day: share * ranks as f64 * 24.0,
        confidence,
        sentence: String::new(),
        evidence: evidence(rank, &bad_steps, last_in, &excess),
        counter_evidence: Vec::new(),
        example_step: example_step(&bad_steps, &savings),
        persistence: None,
        steps: None,
        onset: None,
    };
    verdict.counter_evidence = counter_evidence(rank, &bad_steps, last_in, &excess);
    let share = share * 100.0;
    verdict.sentence = if bad_steps.len() < steps.len() * 9 / 10 {
        let (first, last) = (bad_steps[0].step, bad_steps[bad_steps.len() - 1].step);
        verdict.evidence.push(format!(
            "it stands out in {} steps between {first} and {last}; spread over all {} it costs {} a step",
            bad_steps.len(),
            steps.len(),
            millis(cost as f64)
        ));
        let (says, usual) = (excess.says(), millis(usual));
        format!(
            "Rank {rank} {says} and cost {usual} in each of {} steps up to {last} ({share:.0} % of all time watched).",
            bad_steps.len()
        )
    } else {
        format!(
            "Rank {rank} {} and costs every step {} ({share:.0} % of it).",
            excess.says(),
            millis(cost as f64)
        )
    };
    Some(verdict)
}

pub(crate) fn cost_share(cost_nanos: u64, steps: &[&StepAnalysis]) -> f64 {
    let total: u64 = steps.iter().map(|step| step.step_nanos()).sum();
    if total == 0 { 0.0 } else { cost_nanos as f64 * steps.len() as f64 / total as f64 }
}

pub(crate) fn millis(nanos: f64) -> String {
    let millis = nanos / 1e6;
    if millis.abs() >= 10.0 { format!("{millis:.0} ms") } else { format!("{millis:.1} ms") }
}

/// Where a rank spends more than the others: mean per step over the bad steps, in nanoseconds.
struct Excess {
    input: f64,
    h2d: f64,
    compute: f64,
    transfer: f64,
    other: f64,
    /// Processor time in compute phases beyond the others'; `None` where it was not measured.
    compute_cpu: Option<f64>,
    forward_backward_correlation: Option<f64>,
}

impl Excess {
    fn of(steps: &[&StepAnalysis], rank: usize) -> Option<Self> {
        let mean_excess = |of: &dyn Fn(&RankAnalysis) -> Option<f64>| {
            stats::mean(steps.iter().filter_map(|step| {
                let own = of(step.ranks.get(rank)?.as_ref()?)?;
                let others = step.present().filter(|(other, _)| *other != rank);
                Some(own - stats::mean(others.filter_map(|(_, other)| of(other)))?)
            }))
        };
        let part = |part: Part| mean_excess(&|rank| Some(rank.part(part) as f64));
        let own_compute = steps.iter().filter_map(|step| {
            let own = step.ranks.get(rank)?.as_ref()?;
            Some((own.part(Part::Forward) as f64, own.part(Part::Backward) as f64))
        });
        Some(Self {
            input: part(Part::Input)?,
            h2d: part(Part::H2d)?,
            compute: part(Part::Forward)? + part(Part::Backward)? + part(Part::Optimizer)?,
            transfer: part(Part::ExposedTransfer)?,
            other: part(Part::Other)?,
            compute_cpu: mean_excess(&|rank| rank.compute_cpu_nanos.map(|nanos| nanos as f64)),
            forward_backward_correlation: stats::correlation(&own_compute.collect::<Vec<_>>()),
        })
    }

    /// The parts, the largest excess first.
    fn ranked(&self) -> [(f64, Cause); 5] {
        let compute_cause = match self.compute_cpu {
            Some(cpu) if self.compute > 0.0 && cpu < CPU_EXPLAINS * self.compute => Cause::Host,
            _ => Cause::Compute,
        };
        let mut ranked = [
            (self.input, Cause::Input),
            (self.h2d, Cause::H2d),
            (self.compute, compute_cause),
            (self.transfer, Cause::Network),
            (self.other, Cause::Host),
        ];
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked
    }

    fn cause(&self) -> Cause {
        let [(largest, cause), ..] = self.ranked();
        if largest > 0.0 { cause } else { Cause::Unknown }
    }

    /// One part stands out from the rest.
    fn is_clear(&self) -> bool {
        let [(largest, _), (second, _), ..] = self.ranked();
        largest > 0.0 && second < largest / 2.0
    }

    fn says(&self) -> &'static str {
        match self.cause() {
            Cause::Input => "waits for its input",
            Cause::H2d => "copies its input slowly",
            Cause::Compute => "computes longer than the others",
            Cause::Network => "gets its reduced gradients later than the others",
            Cause::Host => "loses time on its host",
            _ => "is late, for a reason the records do not show,",
        }
    }
}

fn evidence(rank: usize, steps: &[&StepAnalysis], last_in: usize, excess: &Excess) -> Vec<String> {
    let mut evidence =
        vec![format!("its own work was the longest of all ranks in {last_in} of {} steps", steps.len())];
    for (nanos, name) in [
        (excess.input, "input"),
        (excess.h2d, "host-to-device copies"),
        (excess.compute, "compute"),
        (excess.transfer, "exposed transfer"),
        (excess.other, "time outside every phase"),
    ] {
        if nanos > 0.05 * stats::mean(steps.iter().map(|step| step.step_nanos() as f64)).unwrap_or(0.0) {
            evidence.push(format!("its {name} takes {} longer than the others' mean", millis(nanos)));
        }
    }
    if let (Cause::Host, Some(cpu)) = (excess.cause(), excess.compute_cpu)
        && excess.compute > excess.other
    {
        evidence.push(format!(
            "only {} of that is processor time: the thread was off the processor",
            millis(cpu.max(0.0))
        ));
    }
    let caused = steps.iter().filter_map(|step| Some(step.ranks.get(rank)?.as_ref()?.caused_wait_nanos));
    if let Some(caused) = stats::mean(caused).filter(|&caused| caused > 0.0) {
        evidence.push(format!("the others wait for it {} a step on average", millis(caused)));
    }
    evidence.extend(frontier_evidence(rank, steps));
    evidence
}

/// The frontier ledger's word, when it names the same rank.
fn frontier_evidence(rank: usize, steps: &[&StepAnalysis]) -> Option<String> {
    let mut counts = [0_usize; 8];
    for step in steps {
        let first = frontier::frontier(step).into_iter().filter(|increment| increment.rank == rank);
        if let Some(increment) = first.max_by_key(|increment| increment.nanos) {
            counts[increment.part as usize] += 1;
        }
    }
    let (part, count) = Part::ALL.into_iter().zip(counts).max_by_key(|&(_, count)| count)?;
    (count * 2 > steps.len()).then(|| {
        format!(
            "the frontier ledger, which needs no clocks, first sees the delay in {} on this rank",
            part.name()
        )
    })
}

fn counter_evidence(rank: usize, steps: &[&StepAnalysis], last_in: usize, excess: &Excess) -> Vec<String> {
    let mut against = Vec::new();
    let not_last = steps.len() - last_in;
    if not_last > 0 {
        against.push(format!("in {not_last} of these steps another rank was as late or later"));
    }
    if !excess.is_clear() {
        against.push("no single phase explains most of it".into());
    }
    if excess.cause() == Cause::Compute
        && excess.forward_backward_correlation.is_some_and(|r| r >= MORE_WORK_CORRELATION)
    {
        against.push(
            "its forward and backward rise and fall together: it may have more work, not a slow device"
                .into(),
        );
    }
    let clock_free = steps
        .iter()
        .filter(|step| step.ranks.get(rank).and_then(Option::as_ref).is_some_and(|rank| rank.clock_free));
    if clock_free.count() * 2 > steps.len() {
        against.push("waits are split by durations, since the clocks are not aligned well enough".into());
    }
    against
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
