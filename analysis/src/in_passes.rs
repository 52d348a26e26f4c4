//! Waits within the passes of all ranks: their threads are off the processor, and not because other threads use the cores.
//!
//! The ledger counts all of a pass as compute, and what a rank does between its forward and its backward pass, such as reading the next
//! batch, as part of the forward pass. That it does not compute meanwhile shows only in the processor time of the passes, less the time
//! for which the thread waited for a core.

use wire::clock::ServerNanos;
use wire::views::{Cause, Confidence};

use crate::finding::{Evidence, Finding, Reason, Statement};
use crate::hosts::{Hosts, Shares};
use crate::stats;
use crate::step::StepAnalysis;
use crate::verdict::{HIGH_CONFIDENCE_STEPS, MIN_SHARE, MIN_STEPS, finding_on_all};

/// Returns a finding on what all ranks wait for within their passes, if it costs enough. `None` if
/// processor time, or the wait for cores, was not measured.
pub(crate) fn find(
    steps: &[&StepAnalysis],
    hosts: &Hosts<'_>,
    window: (ServerNanos, ServerNanos),
) -> Option<Finding> {
    if steps.len() < MIN_STEPS {
        return None;
    }
    let period = stats::mean(steps.iter().map(|step| step.period_nanos() as f64))?;
    let ranks = steps.iter().map(|step| step.ranks.len()).max()?;
    let waits = waits_for_cores(hosts, ranks, window)?;
    let off = stats::mean(steps.iter().filter_map(|step| usual_rank_off(step)))?;
    // The training thread may wait for other threads of the process to compute, while they wait for a core.
    let surely = off - waits.all_threads * period;
    if surely < MIN_SHARE * period {
        return None;
    }
    let cost = off - waits.training_thread * period;
    let mut finding = finding_on_all(steps, cost, Cause::Host, Statement::AllAlike)?;
    let is_sure = steps.len() >= HIGH_CONFIDENCE_STEPS && 2.0 * surely >= cost;
    finding.verdict.confidence = if is_sure { Confidence::High } else { Confidence::Medium };
    finding.reason = Some(Reason::WaitsInPasses);
    finding.evidence.push(Evidence::WaitsInPasses { off, waited: waits.training_thread });
    Some(finding)
}

/// How long threads were ready to run and no core ran them, in seconds per second: medians over ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WaitsForCores {
    training_thread: f64,
    /// The sum over all threads of a process.
    all_threads: f64,
}

/// Returns how long the threads of the usual rank waited for cores; `None` if that is not known of every rank and its
/// training thread.
fn waits_for_cores(
    hosts: &Hosts<'_>,
    ranks: usize,
    window: (ServerNanos, ServerNanos),
) -> Option<WaitsForCores> {
    let waits = |rank| {
        let shares = Shares::rank(hosts, rank, window)?;
        Some((shares.training_waited?, shares.waited))
    };
    let all: Vec<(f64, f64)> = (0..ranks).map(waits).collect::<Option<_>>()?;
    Some(WaitsForCores {
        training_thread: stats::median(all.iter().map(|(training, _)| *training))?,
        all_threads: stats::median(all.iter().map(|(_, all)| *all))?,
    })
}

/// Returns how long the usual rank is off the processor in the passes of a step, in nanoseconds: the lower median over ranks.
fn usual_rank_off(step: &StepAnalysis) -> Option<f64> {
    stats::lower_median(
        step.present().filter_map(|(_, rank)| rank.off_processor_nanos().map(|off| off as f64)),
    )
}

#[cfg(test)]
mod tests;
