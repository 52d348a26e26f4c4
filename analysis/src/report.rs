//! Builds a report from a window of analyzed steps.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use wire::batch::Instrumentation;
use wire::burst::Activity;
use wire::clock::ServerNanos;
use wire::event::Function;
use wire::ids::{Bucket, Rank, RunId};
use wire::views::{
    BucketStats, ComputedOn, Failure, Group, Hang, RankClock, RankDrops, RankLedger, Report, RunState,
    ScalingEfficiency, Verdict,
};

use crate::devices::{self, ClockSample};
use crate::hosts::{self, Hosts, RankHost};
use crate::loss::StepCosts;
use crate::step::{CollectiveAnalysis, RankAnalysis, StepAnalysis};
use crate::verdict::{Setting, Verdicts};
use crate::{bursts, comm_model, groups, latency, loss, overhead, stats, verdict, what_if};
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
    /// The device samples of each rank.
    pub clock_samples: Vec<Vec<ClockSample>>,
    /// The host data of each rank.
    pub hosts: Vec<Option<RankHost>>,
    /// The newest burst of each rank's devices.
    pub bursts: Vec<Option<Activity>>,
    /// The share of the time, 0 to 1, below which an effect is a note instead of a verdict.
    pub notable_share: f64,
    /// The steps whose records cannot be shown, in ascending order. None of them becomes the example of a verdict.
    pub hidden_steps: Vec<u64>,
}

/// Why an unmodified job has no phases.
const ONLY_COLLECTIVES: &str = "only collectives are recorded, so compute is inferred: it is taken to last until the \
    last collective of a step that found its stream idle, except for collectives whose result the rank waits for; \
    forward, optimizer and unmarked input are part of it, and all of it is called backward";

/// Why there are no figures before the first observed step.
const NO_STEPS: &str =
    "no observed step yet: a step counts if it is complete on all ranks and past the first two";
/// Why an unmodified job, in which nothing marks steps, has no steps yet.
const NO_STEPS_FOUND: &str =
    "no step was found yet: steps are found where collectives repeat, which takes some seconds";

/// Why figures of collectives are withheld.
const ONLY_ENQUEUED: &str = "the records say when collectives were enqueued and not when they ran (NCCL 2.26 and later \
    report it, and so do events around the calls of a job that is linked with NCCL)";

/// Why some steps of a run are left out.
const SAMPLED_OUT: &str = "only the enqueueing of their collectives was recorded, because observing every step in full \
    would exceed the overhead budget; all figures come from the other steps, which are the same on every rank";

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
    let mut missing = BTreeMap::new();
    if left_out > 0 {
        let all = left_out + observed.len();
        missing.insert("steps".to_owned(), format!("{left_out} of {all} steps are left out: {SAMPLED_OUT}"));
    }
    let mut want = |name: &str, is_there: bool, reason: &str| {
        if !is_there {
            missing.insert(name.to_owned(), reason.to_owned());
        }
    };
    let no_steps =
        if facts.instrumentation.is_unmodified_job() && steps.is_empty() { NO_STEPS_FOUND } else { NO_STEPS };
    let throughput = throughput(&observed);
    let no_samples = if observed.len() < 2 { no_steps } else { "the job does not count its samples" };
    want("throughput", throughput.is_some(), no_samples);
    want("phases", !facts.instrumentation.is_unmodified_job(), ONLY_COLLECTIVES);
    let step_time_nanos = stats::spread(observed.iter().map(|step| step.step_nanos() as f64));
    want("step_time_nanos", step_time_nanos.is_some(), no_steps);
    let overlap_ratio = overlap(&observed);
    want("overlap_ratio", overlap_ratio.is_some(), "nothing was reduced");
    let lengths: Vec<(u64, u64, bool)> = steps
        .iter()
        .map(Borrow::borrow)
        .filter(|step: &&StepAnalysis| step.complete && step.step.0 >= WARM_UP_STEPS)
        .map(|step| (step.step.0, step.local_nanos, step.shadow))
        .collect();
    let own_overhead = overhead::own_overhead(&lengths);
    want("own_overhead_ratio", own_overhead.is_some(), "fewer than six shadow steps between observed ones");
    let period_nanos = loss::period(&observed);
    let scaling_efficiency =
        ScalingEfficiency { implied: implied_efficiency(&observed, period_nanos), measured: None };
    let ledger = ledger(&observed, facts.ranks);
    let what_if = what_if::what_if(&observed);
    want(
        "what_if",
        what_if.is_some(),
        "no observed step can be replayed: records of some rank are missing, or collectives are among only some \
         ranks and clocks are not aligned, or there are too many ranks and collectives to replay",
    );
    want("scaling_efficiency.implied", scaling_efficiency.implied.is_some(), no_steps);
    let buckets = bucket_stats(facts, &observed);
    let groups = groups::groups(&observed, |collective| function(facts, collective));
    let comm_model = comm_model::fit(&model_points(&buckets));
    want("comm_model", comm_model.is_some(), "the model needs buckets of at least two sizes");
    if let Some(reason) = verdict::insufficient(observed.len(), facts.ranks as usize) {
        want("verdicts", false, &reason);
    }
    let Verdicts { verdicts, notes } = verdicts(facts, &observed);
    let report = Report {
        run: facts.run.clone(),
        name: facts.name.clone(),
        state: facts.state,
        ranks: facts.ranks,
        steps: observed.len() as u64,
        step_range: observed.first().zip(observed.last()).map(|(first, last)| (first.step.0, last.step.0)),
        step_time_nanos,
        local_step_time_nanos: stats::spread(observed.iter().map(|step| step.local_nanos as f64)),
        period_nanos,
        throughput,
        batch: batch(&observed),
        sample_unit: facts.sample_unit.clone(),
        overlap_ratio,
        communication_fraction: communication_fraction(&observed),
        tail_nanos: stats::median(ranks_of(&observed).filter_map(|(_, rank)| Some(rank.tail_nanos? as f64))),
        scaling_efficiency,
        baseline: None,
        own_overhead_ratio: own_overhead.map(|overhead| overhead.ratio),
        own_overhead,
        what_if,
        loss_ledger: period_nanos.and_then(|period| {
            Some(loss::implied(&StepCosts::from_ledger(&ledger, observed.len(), period)?))
        }),
        ledger,
        verdicts,
        notes,
        computed_on: computed_on(facts),
        buckets,
        groups,
        comm_model,
        clocks: clocks(facts),
        drops: facts.drops.clone(),
        hang: facts.hang.clone(),
        failure: facts.failure.clone(),
        missing,
    };
    if observed.iter().any(|step| step.is_only_enqueued()) { withheld(report) } else { report }
}

/// Returns the steps whose collectives have known running times, and the number of other steps. A run whose recording
/// was reduced has both kinds, whose figures cannot be averaged. Returns all steps if no step has known running times.
fn best_known(steps: Vec<&StepAnalysis>) -> (Vec<&StepAnalysis>, usize) {
    let (enqueued, known): (Vec<_>, Vec<_>) = steps.iter().partition(|step| step.is_only_enqueued());
    if known.is_empty() { (steps, 0) } else { (known, enqueued.len()) }
}

/// Removes all figures from a report that need the running times of collectives, for a run in which only their
/// enqueueing is known. Step times and host figures remain.
fn withheld(report: Report) -> Report {
    let mut missing = report.missing;
    for figure in [
        "overlap_ratio",
        "communication_fraction",
        "tail_nanos",
        "scaling_efficiency.implied",
        "what_if",
        "loss_ledger",
        "verdicts",
        "buckets",
        "groups",
        "comm_model",
    ] {
        missing.insert(figure.into(), ONLY_ENQUEUED.into());
    }
    let scaling_efficiency = ScalingEfficiency { implied: None, ..report.scaling_efficiency };
    Report {
        overlap_ratio: None,
        communication_fraction: None,
        tail_nanos: None,
        scaling_efficiency,
        what_if: None,
        loss_ledger: None,
        verdicts: Vec::new(),
        notes: Vec::new(),
        buckets: Vec::new(),
        groups: Vec::new(),
        comm_model: None,
        missing,
        ..report
    }
}

fn ranks_of<'a>(steps: &'a [&StepAnalysis]) -> impl Iterator<Item = (usize, &'a RankAnalysis)> {
    steps.iter().flat_map(|step| step.present())
}

/// Returns the samples per second over all ranks; `None` if the job counts no samples. With aligned clocks, the time
/// runs from the end of the first step to the end of the last one, so time between steps counts. Without them, it is
/// the sum of the local step times.
#[must_use]
pub fn throughput(steps: &[&StepAnalysis]) -> Option<f64> {
    let (first, rest) = steps.split_first()?;
    let last = rest.last()?;
    let samples: u64 = rest.iter().flat_map(|step| step.present()).map(|(_, rank)| rank.samples).sum();
    let spanned = first.window.zip(last.window).map(|((_, from), (_, to))| to - from);
    // Steps that were not observed (shadow steps) took time too.
    let steps_between = (last.step.0 - first.step.0) as f64;
    let nanos = spanned.filter(|&nanos| nanos > 0).map_or_else(
        || rest.iter().map(|step| step.local_nanos as f64).sum::<f64>(),
        |nanos| nanos as f64 * rest.len() as f64 / steps_between,
    );
    (nanos > 0.0 && samples > 0).then(|| samples as f64 / nanos * 1e9)
}

fn overlap(steps: &[&StepAnalysis]) -> Option<f64> {
    let (hidden, comm) = ranks_of(steps).fold((0_u64, 0_u64), |(hidden, comm), (_, rank)| {
        (hidden + rank.hidden_nanos, comm + rank.comm_nanos)
    });
    (comm > 0).then(|| hidden as f64 / comm as f64)
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
        let [input, h2d, forward, backward, wait, transfer, optimizer, other] = analysis.parts;
        sum.input_nanos += input;
        sum.h2d_nanos += h2d;
        sum.forward_nanos += forward;
        sum.backward_nanos += backward;
        sum.exposed_wait_nanos += wait;
        sum.exposed_transfer_nanos += transfer;
        sum.optimizer_nanos += optimizer;
        sum.other_nanos += other;
        sum.step_nanos += analysis.step_nanos;
    }
    ledger
}

/// Returns the function of a collective. Jobs with the built-in reducer number all collectives by one count and run
/// only all-reduces.
fn function(facts: &RunFacts, collective: &CollectiveAnalysis) -> Function {
    if facts.instrumentation.is_unmodified_job() {
        Function::from_seq(collective.seq)
    } else {
        Function::AllReduce
    }
}

fn bucket_stats(facts: &RunFacts, steps: &[&StepAnalysis]) -> Vec<BucketStats> {
    type Key = (Reverse<Group>, Bucket, u64, Function);
    let mut by_bucket: BTreeMap<Key, Vec<&CollectiveAnalysis>> = BTreeMap::new();
    for one in steps.iter().flat_map(|step| &step.collectives) {
        // The largest groups, which reduce the gradients, come first.
        let key = (Reverse(one.group), one.bucket, one.bytes, function(facts, one));
        by_bucket.entry(key).or_default().push(one);
    }
    let stats_of = |((Reverse(group), bucket, bytes, function), of): (Key, Vec<&CollectiveAnalysis>)| {
        let waits = of.iter().map(|c| c.wait_nanos.unwrap_or(c.wait_clock_free_nanos));
        let transfers = of.iter().map(|c| c.transfer_nanos.unwrap_or(c.transfer_clock_free_nanos));
        let wait_nanos = stats::spread(waits.clone())?;
        let transfer_nanos = stats::spread(transfers.clone())?;
        let duration: u64 = of.iter().map(|c| c.duration_nanos).sum();
        let hidden: u64 = of.iter().map(|c| c.hidden_nanos).sum();
        let Group { ranks, .. } = group;
        let full = function.full_bytes(bytes, ranks) as f64;
        let algbw = (transfer_nanos.median > 0.0).then(|| full / transfer_nanos.median * 1e9);
        Some(BucketStats {
            group,
            function,
            bucket,
            bytes,
            collectives: of.len() as u64,
            wait_nanos,
            transfer_nanos,
            latency: latency::histogram(waits, transfers),
            hidden_ratio: (duration > 0).then(|| hidden as f64 / duration as f64),
            algbw,
            busbw: algbw.zip(function.bus_factor(ranks)).map(|(algbw, factor)| algbw * factor),
        })
    };
    by_bucket.into_iter().filter_map(stats_of).collect()
}

/// Returns the points of the communication model, from the largest groups only: a communicator of two ranks has a
/// different latency than one of all ranks.
fn model_points(buckets: &[BucketStats]) -> Vec<(u64, f64)> {
    let largest = buckets.first().map(|bucket| bucket.group);
    let of_largest = buckets.iter().filter(|bucket| Some(bucket.group) == largest);
    of_largest.map(|bucket| (bucket.bytes, bucket.transfer_nanos.median / 1e9)).collect()
}

/// Returns what the ranks compute on: GPUs if any rank has device samples.
fn computed_on(facts: &RunFacts) -> ComputedOn {
    let has_device = facts.clock_samples.iter().any(|clock_samples| !clock_samples.is_empty());
    if has_device { ComputedOn::Gpu } else { ComputedOn::Cpu }
}

fn verdicts(facts: &RunFacts, observed: &[&StepAnalysis]) -> Verdicts {
    let setting = Setting {
        computed_on: computed_on(facts),
        notable_share: facts.notable_share,
        hidden_steps: &facts.hidden_steps,
    };
    let mut found = verdict::verdicts(observed, &setting);
    let hosts = Hosts { ranks: &facts.hosts, fits: &facts.fits };
    for verdict in found.verdicts.iter_mut().chain(&mut found.notes) {
        if let Some(window) = window_of(verdict, observed) {
            devices::explain(verdict, &facts.clock_samples, window);
            hosts::explain(verdict, &hosts, window);
        }
        bursts::explain(verdict, &facts.bursts);
    }
    found
}

/// Returns the window of a verdict, from its first step to the end of its last, on the server's clock.
fn window_of(verdict: &Verdict, observed: &[&StepAnalysis]) -> Option<(ServerNanos, ServerNanos)> {
    let window = |number: u64| {
        let at = observed.binary_search_by_key(&number, |step| step.step.0).ok()?;
        observed[at].window
    };
    Some((window(verdict.steps.0)?.0, window(verdict.steps.1)?.1))
}

fn clocks(facts: &RunFacts) -> Vec<RankClock> {
    let clock = |(rank, fit): (usize, &Option<ClockFit>)| RankClock {
        rank: Rank(rank as u32),
        bound_nanos: fit.as_ref().map(ClockFit::bound),
        drift_ppb: fit.map_or(0.0, |fit| fit.drift_ppb),
    };
    facts.fits.iter().enumerate().map(clock).collect()
}
