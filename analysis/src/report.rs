//! Builds a report from a window of analyzed steps.

mod buckets;
mod facts;
mod figures;
mod findings;
mod gaps;
mod ledger;
mod observed;
mod reasons;

use std::borrow::Borrow;

use timing::clocks::ClockFit;
use wire::ids::Rank;
use wire::views::{MemoryGrowth, Missing, OwnOverhead, RankClock, Report, ScalingEfficiency, Verdict};

use crate::finding::Finding;
use crate::memory::{self, Levels, Memory};
use crate::step::StepAnalysis;
use crate::verdict::Findings;
use crate::{groups, last_ranks, layouts, overhead, traces, wording};
use buckets::bucket_stats;
pub use facts::RunFacts;
pub use figures::batch;
use observed::Observed;

/// The number of warm-up steps, which are stored but not counted. They warm caches up and run on the first bucket
/// layout.
pub const WARM_UP_STEPS: u64 = 2;

/// Returns true if a step is observed: complete on all ranks, not a shadow step, and past the warm-up.
#[must_use]
pub fn is_observed(step: &StepAnalysis) -> bool {
    step.complete && !step.shadow && step.step.0 >= WARM_UP_STEPS
}

/// Builds the report over `steps`, which must be in step order.
#[must_use]
pub fn report<S: Borrow<StepAnalysis>>(facts: &RunFacts, steps: &[S]) -> Report {
    let all: Vec<&StepAnalysis> = steps.iter().map(Borrow::borrow).collect();
    let observed = Observed::new(facts, &all);
    let reasons = &observed.reasons;
    let (mut buckets, all_buckets) = match reasons.only_enqueued {
        true => (Vec::new(), 0),
        false => bucket_stats(facts, &observed.steps),
    };
    layouts::name(&mut buckets, &facts.layouts);
    let (Findings { verdicts, notes }, verdicts_missing) = findings::findings(&observed, &buckets);
    let account = findings::account(&observed, &verdicts);
    let verdicts = written(verdicts);
    let flops_utilization = observed.flops_utilization();
    let spent =
        wording::account::spent(&account, &verdicts, Some(&flops_utilization), reasons.unclear.as_ref());
    let mut gaps = gaps::gaps(&observed);
    gaps.extend(buckets::left_out(buckets.len(), all_buckets));
    Report {
        run: facts.run.clone(),
        name: facts.name.clone(),
        state: facts.state,
        ranks: facts.ranks,
        steps: observed.steps.len() as u64,
        step_range: observed
            .steps
            .first()
            .zip(observed.steps.last())
            .map(|(first, last)| (first.step.0, last.step.0)),
        step_time_nanos: observed.spread(StepAnalysis::step_nanos),
        local_step_time_nanos: observed.spread(|step| step.local_nanos),
        period_nanos: observed.period(),
        throughput: observed.throughput(),
        batch: observed.batch(),
        sample_unit: facts.sample_unit.clone(),
        flops_utilization,
        goodput: facts.goodput.clone().into(),
        overlap_ratio: observed.overlap_ratio(),
        communication_fraction: observed.communication_fraction(),
        tail_nanos: observed.tail(),
        scaling_efficiency: ScalingEfficiency {
            implied: observed.implied_efficiency(),
            measured: Missing::NoSmallerRun.into(),
        },
        baseline: None,
        own_overhead: own_overhead(&all).ok_or(Missing::FewShadowSteps).into(),
        what_if: observed.what_if(),
        loss_ledger: observed.loss_ledger(),
        groups: reasons.list(|| groups::groups(&observed.steps, |collective| facts.function(collective))),
        comm_model: observed.comm_model(&buckets),
        account,
        spent,
        verdicts,
        past_faults: Vec::new(),
        memory: memory(facts),
        notes: written(notes),
        verdicts_missing,
        last_ranks: reasons.list(|| last_ranks::last_ranks(&observed.steps)),
        traced: traces::merged(facts.summaries.iter().flatten().map(|summary| &**summary)),
        computed_on: facts.computed_on(),
        buckets,
        clocks: clocks(facts),
        drops: facts.drops.clone(),
        hang: facts.hang.clone(),
        failure: facts.failure.clone(),
        events: facts.events.clone(),
        hosts: facts.placement.clone(),
        attributes: facts.attributes.clone(),
        gaps,
        ledger: observed.into_shown_ledger(),
    }
}

fn written(findings: Vec<Finding>) -> Vec<Verdict> {
    findings.into_iter().map(wording::verdict).collect()
}

/// Returns the memory that grows.
fn memory(facts: &RunFacts) -> Vec<MemoryGrowth> {
    let hosts: Vec<Option<&Levels>> =
        facts.hosts.iter().map(|host| host.as_ref().map(|host| &host.history.memory)).collect();
    memory::growth(&Memory {
        ranks: facts.ranks,
        hosts: &hosts,
        devices: &facts.device_memory,
        placement: &facts.placement,
    })
}

/// Measures the cost of recording from all complete steps past the warm-up, shadow steps included.
fn own_overhead(steps: &[&StepAnalysis]) -> Option<OwnOverhead> {
    let counted = steps.iter().filter(|step| step.complete && step.step.0 >= WARM_UP_STEPS);
    let length = |step: &&StepAnalysis| overhead::StepLength {
        step: step.step.0,
        nanos: step.local_nanos,
        is_shadow: step.shadow,
    };
    overhead::own_overhead(&counted.map(length).collect::<Vec<_>>())
}

/// Returns the clocks of the ranks that have sent anything. The others are only a number that the sender states.
fn clocks(facts: &RunFacts) -> Vec<RankClock> {
    let has_spoken = |rank: usize| facts.work.get(rank).is_some_and(Option::is_some);
    let clock = |(rank, fit): (usize, &Option<ClockFit>)| RankClock {
        rank: Rank(rank as u32),
        bound_nanos: fit.as_ref().map(ClockFit::bound),
        drift_ppb: fit.map_or(0.0, |fit| fit.drift_ppb),
    };
    let known = facts.fits.iter().enumerate().filter(|(rank, fit)| fit.is_some() || has_spoken(*rank));
    let mut clocks: Vec<RankClock> = known.map(clock).collect();
    clocks.shrink_to_fit();
    clocks
}

#[cfg(test)]
pub(crate) mod tests;
