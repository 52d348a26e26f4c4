//! What slows all ranks from outside of the job, from the first step on: a CPU limit, a lack of memory, lowered clocks.
//!
//! It lengthens whatever the ranks do, so no part of the step stands out and no rank is late. Only samples of hosts and devices show
//! it. What they show of all ranks becomes a finding here; what began later, or hits some ranks, is refined by [`crate::hosts`] and
//! [`crate::devices`].

use wire::clock::ServerNanos;
use wire::views::Cause;

use crate::account::StepAccount;
use crate::devices::{self, DeviceState, LoweredClocks};
use crate::finding::{Doubt, Finding, Reason, Statement};
use crate::hosts::{Hosts, SlowHosts};
use crate::in_passes;
use crate::stats;
use crate::step::StepAnalysis;
use crate::verdict::{Findings, against_all};

/// Adds what slows all ranks to the findings on `steps`.
pub(crate) fn add(
    found: &mut Findings,
    steps: &[&StepAnalysis],
    hosts: &Hosts<'_>,
    devices: &[Vec<DeviceState>],
    notable_share: f64,
) {
    let Some(window) = window(steps) else { return };
    let ranks = steps.iter().map(|step| step.ranks.len()).max().unwrap_or(0);
    let of_hosts = match hosts.slow_all(ranks, window) {
        Some(slowed) => by_host(steps, slowed),
        // Such a host would explain why threads are off their processors.
        None => in_passes::find(steps, hosts, window),
    };
    let of_devices =
        devices::lowered_on_all(devices, ranks, window).and_then(|lowered| by_clock(steps, &lowered));
    for finding in [of_hosts, of_devices].into_iter().flatten() {
        let is_notable = finding.verdict.cost_share >= notable_share;
        if is_notable { &mut found.verdicts } else { &mut found.notes }.push(finding);
    }
}

/// Returns the window of the steps on the server's clock.
fn window(steps: &[&StepAnalysis]) -> Option<(ServerNanos, ServerNanos)> {
    Some((steps.first()?.window?.0, steps.last()?.window?.1))
}

fn by_host(steps: &[&StepAnalysis], slowed: SlowHosts) -> Option<Finding> {
    let period = stats::mean(steps.iter().map(|step| step.period_nanos() as f64))?;
    let mut finding = against_all(steps, slowed.share * period, Cause::Host, Statement::AllAlike)?;
    finding.reason = Some(Reason::SlowsAll(slowed.taker));
    finding.evidence = slowed.evidence;
    finding.counter_evidence.push(Doubt::InAllParts);
    Some(finding)
}

/// Compute takes as much longer as the clock is lower, at most: what waits for memory does not.
fn by_clock(steps: &[&StepAnalysis], lowered: &LoweredClocks) -> Option<Finding> {
    use wire::live::Part::{Backward, Forward, Optimizer};
    let accounts = steps.iter().filter_map(|step| StepAccount::new(step));
    let compute = |account: StepAccount| {
        [Forward, Backward, Optimizer].map(|part| account.usual(part)).iter().sum::<f64>()
    };
    let cost = lowered.below * stats::mean(accounts.map(compute))?;
    let mut finding = against_all(steps, cost, Cause::ClockThrottle, Statement::AllAlike)?;
    finding.reason = Some(Reason::LoweredClock(lowered.reasons));
    finding.evidence.push(lowered.evidence.clone());
    finding.counter_evidence.push(Doubt::AssumesClockBound);
    Some(finding)
}

#[cfg(test)]
mod tests;
