//! Builds a report from a window of analyzed steps.

mod buckets;
mod gaps;

use std::borrow::Borrow;
use std::sync::Arc;

use wire::attributes::{HYPERVISOR, NO_HYPERVISOR};
use wire::batch::Instrumentation;
use wire::burst::Activity;
use wire::clock::ServerNanos;
use wire::ids::{Rank, RunId};
use wire::layout::Layout;
use wire::stacks::{LongStep, SpanLine, Stacks};
use wire::traces::TraceSummary;
use wire::views::captures::TraceComparison;
use wire::views::goodput::Goodput;
use wire::views::{
    Account, AttributeKind, AttributeRanks, BucketStats, ComputedOn, Failure, Figure, FlopsUtilization, Hang,
    HostRanks, MemoryGrowth, Missing, OwnOverhead, RankClock, RankDrops, RankEvent, RankLedger, Report,
    RunState, ScalingEfficiency, Spending, Verdict,
};

use crate::account::{StepAccount, move_time};
use crate::devices::{self, DeviceState};
use crate::finding::{Finding, Reason};
use crate::hosts::{self, Hosts, RankHost};
use crate::in_code::{self, Code};
use crate::loss::StepCosts;
use crate::memory::{self, Levels, Memory};
use crate::mfu::{self, RankWork};
use crate::overlap::Overlap;
use crate::rate::throughput;
use crate::step::{RankAnalysis, StepAnalysis};
use crate::verdict::{Findings, Setting};
use crate::{
    bursts, comm_model, groups, in_trace, inferred, last_ranks, layouts, loss, outside, overhead, overlap,
    slowed, stats, traces, verdict, what_if, wording,
};
use buckets::{bucket_stats, function, model_points};
use gaps::{gaps, has_only_collectives, infers_compute, lacks_files};
use timing::clocks::ClockFit;

/// The number of warm-up steps, which are stored but not counted. They warm caches up and run on the first bucket
/// layout.
pub const WARM_UP_STEPS: u64 = 2;

/// The facts about a run that a report needs in addition to the steps.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// The run.
    pub run: RunId,
    /// The name of the run.
    pub name: String,
    /// The state of the run.
    pub state: RunState,
    /// The number of ranks.
    pub ranks: u32,
    /// The unit of a sample.
    pub sample_unit: String,
    /// What records the run.
    pub instrumentation: Instrumentation,
    /// The clock of each rank.
    pub fits: Vec<Option<ClockFit>>,
    /// The ranks that lost records.
    pub drops: Vec<RankDrops>,
    /// The hang, if the run hangs.
    pub hang: Option<Hang>,
    /// The failure, if the run failed.
    pub failure: Option<Failure>,
    /// What happened to ranks, oldest first.
    pub events: Vec<RankEvent>,
    /// The host of each rank.
    pub placement: Vec<HostRanks>,
    /// The attributes of the ranks.
    pub attributes: Vec<AttributeRanks>,
    /// The device samples of each rank.
    pub device_states: Vec<Vec<DeviceState>>,
    /// The host data of each rank.
    pub hosts: Vec<Option<RankHost>>,
    /// The memory of each rank's device over time.
    pub device_memory: Vec<Option<Arc<Levels>>>,
    /// The newest burst of each rank's devices.
    pub bursts: Vec<Option<Activity>>,
    /// The newest stacks of each rank's threads.
    pub stacks: Vec<Option<Arc<Stacks>>>,
    /// The stacks of each rank's newest and longest long steps, oldest first.
    pub long_steps: Vec<Vec<Arc<LongStep>>>,
    /// The lines of code in which each rank does what its spans record, as far as they are known: of checkpoints, for instance.
    pub span_lines: Vec<Vec<SpanLine>>,
    /// The workload of each rank.
    pub work: Vec<Option<RankWork>>,
    /// The layouts of rank 0's buckets, by module, the oldest first.
    pub layouts: Vec<Arc<Layout>>,
    /// The ranks that have other parameters in a bucket than rank 0.
    pub other_layouts: Vec<Rank>,
    /// What differs between the newest traces of two ranks.
    pub traced: Option<Arc<TraceComparison>>,
    /// What ran on each rank, by name.
    pub summaries: Vec<Option<Arc<TraceSummary>>>,
    /// The share of the time, 0 to 1, below which an effect is a note instead of a verdict.
    pub notable_share: f64,
    /// The steps whose records cannot be shown, in ascending order. None of them becomes the example of a verdict.
    pub hidden_steps: Vec<u64>,
    /// How long each rank waited in collectives before its first step, in nanoseconds.
    pub start_waits: Vec<u64>,
    /// What the run used its wall time for.
    pub goodput: Result<Goodput, Missing>,
    /// Steps spread evenly over the whole run, if the report is made over its newest steps; else empty.
    pub course: Vec<Arc<StepAnalysis>>,
    /// Whether the report is made over all steps of the run.
    pub has_all_steps: bool,
}

/// Decides why the figures over some steps are missing.
struct Reasons {
    /// The reason why figures of steps are missing, if there are no steps.
    no_steps: Option<Missing>,
    /// True if the running times of collectives are not known.
    only_enqueued: bool,
    /// The reason why it is not known which part of communication is hidden, if it is not.
    unclear: Option<Missing>,
}

impl Reasons {
    /// `all` are all steps of the window, `observed` those that count.
    fn new<S: Borrow<StepAnalysis>>(facts: &RunFacts, all: &[S], observed: &[&StepAnalysis]) -> Self {
        let no_steps = if facts.instrumentation.is_unmodified_job() && all.is_empty() {
            Missing::NoStepFound
        } else {
            Missing::NoObservedStep
        };
        Self {
            no_steps: observed.is_empty().then_some(no_steps),
            only_enqueued: observed.iter().any(|step| step.is_only_enqueued()),
            unclear: overlap::unclear(observed, |collective| function(facts, collective)),
        }
    }

    /// Returns a figure that needs observed steps.
    fn of_steps<T>(&self, value: impl FnOnce() -> Result<T, Missing>) -> Figure<T> {
        match &self.no_steps {
            Some(reason) => reason.clone().into(),
            None => value().into(),
        }
    }

    /// Returns a figure that needs the running times of collectives. A run in which only their enqueueing is known has
    /// no such figure.
    fn of_collectives<T>(&self, value: impl FnOnce() -> Result<T, Missing>) -> Figure<T> {
        if self.only_enqueued { Missing::OnlyEnqueued.into() } else { self.of_steps(value) }
    }

    /// Returns a figure that rests on which part of communication is hidden.
    fn of_overlap<T>(&self, value: impl FnOnce() -> Result<T, Missing>) -> Figure<T> {
        self.of_collectives(|| self.unclear.clone().map_or_else(value, Err))
    }

    /// Returns a list over collectives; empty if their running times are not known.
    fn list<T>(&self, list: impl FnOnce() -> Vec<T>) -> Vec<T> {
        if self.only_enqueued { Vec::new() } else { list() }
    }
}

/// Returns the samples of one rank in one step: the median over steps of the mean over ranks, as the job stated them.
/// Returns `None` if the job does not count its samples.
#[must_use]
pub fn batch(steps: &[&StepAnalysis]) -> Option<f64> {
    let of_step = |step: &&StepAnalysis| stats::mean(step.present().map(|(_, rank)| rank.samples as f64));
    stats::median(steps.iter().filter_map(of_step)).filter(|&samples| samples > 0.0)
}

/// Returns the observed steps.
fn observed<S: Borrow<StepAnalysis>>(steps: &[S]) -> Vec<&StepAnalysis> {
    steps.iter().map(Borrow::borrow).filter(|step| is_observed(step)).collect()
}

/// Returns true if a step is observed: complete on all ranks, not a shadow step, and past the warm-up.
#[must_use]
pub fn is_observed(step: &StepAnalysis) -> bool {
    step.complete && !step.shadow && step.step.0 >= WARM_UP_STEPS
}

/// Builds the report over `steps`, which must be in step order.
#[must_use]
pub fn report<S: Borrow<StepAnalysis>>(facts: &RunFacts, steps: &[S]) -> Report {
    let (observed, left_out) = best_known(observed(steps));
    let reasons = Reasons::new(facts, steps, &observed);
    let of_overlap = |of: fn(&[&StepAnalysis]) -> Option<f64>| {
        reasons.of_overlap(|| of(&observed).ok_or(Missing::NothingReduced))
    };
    let spread = |of: fn(&StepAnalysis) -> u64| {
        let values = observed.iter().map(|step| of(step) as f64);
        reasons.of_steps(|| stats::spread(values).ok_or(Missing::NoObservedStep))
    };
    let is_imported = facts.instrumentation == Instrumentation::Trace;
    let throughput = || match observed.len() {
        _ if is_imported && batch(&observed).is_none() => Err(Missing::NotInFiles),
        1 => Err(Missing::OneObservedStep),
        _ => throughput(&observed).ok_or(Missing::NoSamples),
    };
    let period_nanos = loss::period(&observed);
    let ledger = ledger(&observed, facts.ranks);
    let loss_ledger = || {
        let costs = StepCosts::from_ledger(&ledger, observed.len(), period_nanos?);
        costs.map(|costs| loss::implied(&costs))
    };
    let efficiency = || implied_efficiency(&observed, period_nanos);
    let (mut buckets, all_buckets) = match reasons.only_enqueued {
        true => (Vec::new(), 0),
        false => bucket_stats(facts, &observed),
    };
    layouts::name(&mut buckets, &facts.layouts);
    let comm_model = comm_model::fit(&model_points(&buckets));
    let (Findings { verdicts, notes }, mut verdicts_missing) = match reasons.only_enqueued {
        true => (Findings::default(), Some(Missing::OnlyEnqueued)),
        false => findings(facts, &observed, &buckets, &ledger),
    };
    if let Some(Missing::Unclear { function, .. }) = reasons.unclear
        && facts.instrumentation == Instrumentation::Trace
        && verdicts.is_empty()
    {
        verdicts_missing = verdict::late_at_unknown_cost(&observed, function).or(verdicts_missing);
    }
    let mut gaps = gaps(facts, &ledger, &reasons, left_out, observed.len());
    gaps.extend(buckets::left_out(buckets.len(), all_buckets));
    let account = match has_only_collectives(facts, &ledger) {
        true => Account::default(),
        false => account(facts, &observed, &verdicts),
    };
    let written =
        |findings: Vec<Finding>| -> Vec<Verdict> { findings.into_iter().map(wording::verdict).collect() };
    let verdicts = written(verdicts);
    let flops_utilization = flops_utilization(facts, &observed);
    let spent =
        wording::account::spent(&account, &verdicts, Some(&flops_utilization), reasons.unclear.as_ref());
    Report {
        run: facts.run.clone(),
        name: facts.name.clone(),
        state: facts.state,
        ranks: facts.ranks,
        steps: observed.len() as u64,
        step_range: observed.first().zip(observed.last()).map(|(first, last)| (first.step.0, last.step.0)),
        step_time_nanos: spread(StepAnalysis::step_nanos),
        local_step_time_nanos: spread(|step| step.local_nanos),
        period_nanos: reasons.of_steps(|| period_nanos.ok_or(Missing::NoObservedStep)),
        throughput: reasons.of_steps(throughput),
        batch: reasons.of_steps(|| {
            batch(&observed).ok_or(if is_imported { Missing::NotInFiles } else { Missing::NoSamples })
        }),
        sample_unit: facts.sample_unit.clone(),
        flops_utilization,
        goodput: facts.goodput.clone().into(),
        overlap_ratio: of_overlap(overlap_ratio),
        communication_fraction: of_overlap(communication_fraction),
        tail_nanos: of_overlap(tail),
        scaling_efficiency: ScalingEfficiency {
            implied: reasons.of_overlap(|| efficiency().ok_or(Missing::NoObservedStep)),
            measured: Missing::NoSmallerRun.into(),
        },
        baseline: None,
        own_overhead: own_overhead(steps).ok_or(Missing::FewShadowSteps).into(),
        what_if: reasons.of_overlap(|| what_if::what_if(&observed)),
        loss_ledger: reasons.of_overlap(|| loss_ledger().ok_or(Missing::NoObservedStep)),
        groups: reasons.list(|| groups::groups(&observed, |collective| function(facts, collective))),
        comm_model: match lacks_files(facts, &ledger) {
            true => Missing::RanksWithoutFile.into(),
            false => reasons.of_collectives(|| comm_model.ok_or(Missing::OneBucketSize)),
        },
        // Where neither compute nor the times of collectives are recorded, each part would be 0 or unknown.
        ledger: if reasons.only_enqueued && has_only_collectives(facts, &ledger) {
            Vec::new()
        } else {
            ledger
        },
        account,
        spent,
        verdicts,
        past_faults: Vec::new(),
        memory: memory(facts),
        notes: written(notes),
        verdicts_missing,
        last_ranks: reasons.list(|| last_ranks::last_ranks(&observed)),
        traced: traces::merged(facts.summaries.iter().flatten().map(|summary| &**summary)),
        computed_on: computed_on(facts),
        buckets,
        clocks: clocks(facts),
        drops: facts.drops.clone(),
        hang: facts.hang.clone(),
        failure: facts.failure.clone(),
        events: facts.events.clone(),
        hosts: facts.placement.clone(),
        attributes: facts.attributes.clone(),
        gaps,
    }
}

/// Returns where the wall time goes. Only findings tell waits within passes from compute.
fn account(facts: &RunFacts, observed: &[&StepAnalysis], findings: &[Finding]) -> Account {
    let steps: Vec<StepAccount> = observed.iter().filter_map(|step| StepAccount::new(step)).collect();
    let goodput = facts.goodput.as_ref().ok().filter(|_| facts.has_all_steps);
    let account = crate::account::account(&steps, goodput);
    let waits = findings.iter().filter(|finding| finding.reason == Some(Reason::WaitsInPasses));
    let nanos: f64 =
        waits.map(|finding| finding.verdict.cost_nanos_per_step as f64 * steps.len() as f64).sum();
    move_time(account, Spending::Compute, Spending::WaitsInPasses, nanos)
}

/// Returns the memory that grows.
fn memory(facts: &RunFacts) -> Vec<MemoryGrowth> {
    let of_hosts: Vec<Option<&Levels>> =
        facts.hosts.iter().map(|host| host.as_ref().map(|host| &host.history.memory)).collect();
    memory::growth(&Memory {
        ranks: facts.ranks,
        of_hosts: &of_hosts,
        of_devices: &facts.device_memory,
        placement: &facts.placement,
    })
}

/// Measures the cost of recording from all complete steps past the warm-up, shadow steps included.
fn own_overhead<S: Borrow<StepAnalysis>>(steps: &[S]) -> Option<OwnOverhead> {
    let counted =
        steps.iter().map(Borrow::borrow).filter(|step| step.complete && step.step.0 >= WARM_UP_STEPS);
    let lengths: Vec<(u64, u64, bool)> =
        counted.map(|step| (step.step.0, step.local_nanos, step.shadow)).collect();
    overhead::own_overhead(&lengths)
}

/// Returns the steps whose collectives have known running times, and the number of other steps. A run whose recording
/// was reduced has both kinds, whose figures cannot be averaged. Returns all steps if no step has known running times.
fn best_known(steps: Vec<&StepAnalysis>) -> (Vec<&StepAnalysis>, usize) {
    let (enqueued, known): (Vec<_>, Vec<_>) = steps.iter().partition(|step| step.is_only_enqueued());
    if known.is_empty() { (steps, 0) } else { (known, enqueued.len()) }
}

fn ranks_of<'a>(steps: &'a [&StepAnalysis]) -> impl Iterator<Item = (usize, &'a RankAnalysis)> {
    steps.iter().flat_map(|step| step.present())
}

fn flops_utilization(facts: &RunFacts, observed: &[&StepAnalysis]) -> FlopsUtilization {
    if facts.instrumentation == Instrumentation::Trace {
        let missing = || Missing::NotInFiles.into();
        return FlopsUtilization {
            basis: None,
            model: missing(),
            hardware: missing(),
            model_flops_per_second: missing(),
        };
    }
    let used = mfu::used(&facts.work, &facts.sample_unit, observed);
    FlopsUtilization {
        basis: used
            .basis()
            .map(|(counted, peak)| wording::mfu::basis(counted, peak, &facts.sample_unit, facts.ranks)),
        model: used.model().into(),
        hardware: used.hardware().into(),
        model_flops_per_second: used.counted.map(|counted| counted.per_second).into(),
    }
}

fn overlap_ratio(steps: &[&StepAnalysis]) -> Option<f64> {
    Overlap::of(ranks_of(steps).map(|(_, rank)| rank)).ratio()
}

/// Returns the median tail, in nanoseconds.
fn tail(steps: &[&StepAnalysis]) -> Option<f64> {
    stats::median(ranks_of(steps).filter_map(|(_, rank)| Some(rank.tail_nanos? as f64)))
}

/// Returns the communication fraction s = T_comm / (T_comp + T_comm).
fn communication_fraction(steps: &[&StepAnalysis]) -> Option<f64> {
    let (compute, comm) = ranks_of(steps).fold((0_u64, 0_u64), |(compute, comm), (_, rank)| {
        (compute + rank.compute_nanos, comm + rank.comm_nanos)
    });
    (compute + comm > 0).then(|| comm as f64 / (compute + comm) as f64)
}

/// Returns the implied efficiency: mean_r |C_r| / T over all steps together. T is the time that a step adds to the run,
/// so the loss ledger sums to 1 - E.
fn implied_efficiency(steps: &[&StepAnalysis], period_nanos: Option<f64>) -> Option<f64> {
    let compute = stats::mean(ranks_of(steps).map(|(_, rank)| rank.compute_nanos as f64))?;
    period_nanos.filter(|period| *period > 0.0).map(|period| compute / period)
}

/// Returns the ledger of each rank; empty without steps, because the parts are then unknown and not 0.
fn ledger(steps: &[&StepAnalysis], ranks: u32) -> Vec<RankLedger> {
    if steps.is_empty() {
        return Vec::new();
    }
    let mut ledger: Vec<RankLedger> =
        (0..ranks).map(|rank| RankLedger { rank: Rank(rank), ..RankLedger::default() }).collect();
    for (rank, analysis) in ranks_of(steps) {
        let Some(sum) = ledger.get_mut(rank) else { continue };
        let [input, h2d, forward, backward, wait, transfer, optimizer, pause, idle, other] = analysis.parts;
        sum.input_nanos += input;
        sum.h2d_nanos += h2d;
        sum.forward_nanos += forward;
        sum.backward_nanos += backward;
        sum.exposed_wait_nanos += wait;
        sum.exposed_transfer_nanos += transfer;
        sum.optimizer_nanos += optimizer;
        sum.pause_nanos += pause;
        sum.pauses_nanos.iter_mut().zip(analysis.pauses).for_each(|(sum, nanos)| *sum += nanos);
        if idle > 0 {
            *sum.idle_nanos.get_or_insert_default() += idle;
        }
        sum.other_nanos += other;
        sum.step_nanos += analysis.step_nanos;
        if analysis.processor_nanos.iter().any(|&nanos| nanos > 0) {
            let processor = sum.processor_nanos.get_or_insert_default();
            processor.iter_mut().zip(analysis.processor_nanos).for_each(|(sum, nanos)| *sum += nanos);
        }
    }
    // A rank without a record has no figure, which is not 0.
    ledger.retain(|rank| rank.step_nanos > 0);
    ledger.shrink_to_fit();
    ledger
}

/// Returns what the ranks compute on: GPUs if any rank has device samples, and in traces, which are of devices.
fn computed_on(facts: &RunFacts) -> ComputedOn {
    let has_device = facts.device_states.iter().any(|device_states| !device_states.is_empty());
    if has_device || facts.instrumentation == Instrumentation::Trace {
        ComputedOn::Gpu
    } else {
        ComputedOn::Cpu
    }
}

/// Returns true if the processors of all ranks say that there is no hypervisor.
fn is_on_bare_metal(facts: &RunFacts) -> bool {
    let says_so = |one: &&AttributeRanks| {
        one.kind == AttributeKind::Software && one.name == HYPERVISOR && one.value == NO_HYPERVISOR
    };
    let ranks = facts.attributes.iter().filter(says_so).map(|one| one.ranks.1 - one.ranks.0 + 1);
    ranks.sum::<u32>() == facts.ranks
}

/// Returns the verdicts and notes, and the reason why there can be no verdict, if so.
fn findings(
    facts: &RunFacts,
    observed: &[&StepAnalysis],
    buckets: &[BucketStats],
    ledger: &[RankLedger],
) -> (Findings, Option<Missing>) {
    let course = self::observed(&facts.course);
    let setting = Setting {
        computed_on: computed_on(facts),
        notable_share: facts.notable_share,
        hidden_steps: &facts.hidden_steps,
        course: &course,
        is_recorded: facts.instrumentation == Instrumentation::Trace,
        is_on_bare_metal: is_on_bare_metal(facts),
        has_only_collectives: has_only_collectives(facts, ledger),
    };
    let (mut found, missing) = verdict::judge(observed, &setting);
    let hosts = Hosts { ranks: &facts.hosts, fits: &facts.fits };
    slowed::add(&mut found, observed, &hosts, &facts.device_states, facts.notable_share);
    let is_one_host = is_one_host(&facts.placement);
    let code = Code {
        stacks: &facts.stacks,
        long_steps: &facts.long_steps,
        lines: &facts.span_lines,
        fits: &facts.fits,
        steps: observed,
    };
    for finding in found.verdicts.iter_mut().chain(&mut found.notes) {
        finding.is_one_host = is_one_host;
        in_code::explain(finding, &code);
        if let Some(window) = window_of(&finding.verdict, observed) {
            devices::explain(finding, &facts.device_states, window);
            hosts::explain(finding, &hosts, window);
        }
        bursts::explain(finding, &facts.bursts);
        in_trace::explain(finding, facts.traced.as_deref());
        in_trace::explain_imported(finding, &facts.summaries);
        in_trace::explain_idle(finding, &facts.summaries);
        layouts::explain(finding, buckets);
        if infers_compute(facts, ledger) {
            inferred::explain(finding);
        }
        if has_only_collectives(facts, ledger) {
            inferred::explain_unrecorded(finding);
        }
    }
    in_code::settle_loaders(&mut found, &code);
    found.settle(observed, &setting);
    if let Ok(goodput) = &facts.goodput {
        let accounts: Vec<StepAccount> = observed.iter().filter_map(|step| StepAccount::new(step)).collect();
        outside::add(&mut found, goodput, &accounts, &facts.start_waits, facts.notable_share);
    }
    let all = found.verdicts.iter_mut().chain(&mut found.notes);
    all.for_each(|finding| finding.is_alone = facts.ranks == 1);
    (found, missing)
}

/// Returns true if all ranks have named their host, and it is the same one.
fn is_one_host(placement: &[HostRanks]) -> bool {
    placement.first().is_some_and(|first| placement.iter().all(|named| named.host == first.host))
}

/// Returns the window of a verdict, from its first step to the end of its last, on the server's clock.
fn window_of(verdict: &Verdict, observed: &[&StepAnalysis]) -> Option<(ServerNanos, ServerNanos)> {
    let window = |number: u64| {
        let at = observed.binary_search_by_key(&number, |step| step.step.0).ok()?;
        observed[at].window
    };
    Some((window(verdict.steps.0)?.0, window(verdict.steps.1)?.1))
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
