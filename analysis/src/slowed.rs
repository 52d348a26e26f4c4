//! What slows all ranks from outside of the job, from the first step on: a CPU limit, a lack of memory, lowered clocks.
//!
//! It lengthens whatever the ranks do, so no part of the step stands out and no rank is late. Only samples of hosts and devices show
//! it. What they show of all ranks becomes a finding here; what began later, or hits some ranks, is refined by [`crate::evidence`].

use wire::clock::ServerNanos;
use wire::views::Cause;

use crate::account::StepAccount;
use crate::devices::{self, DeviceState, LoweredClocks, Samples};
use crate::finding::{Doubt, Evidence, Finding, Reason, Statement, Taker};
use crate::hosts::{Hosts, MIN_SHARE, Shares};
use crate::in_passes;
use crate::stats;
use crate::step::StepAnalysis;
use crate::verdict::{Findings, finding_on_all};

pub(crate) fn add(
    found: &mut Findings,
    steps: &[&StepAnalysis],
    hosts: &Hosts<'_>,
    devices: &[Vec<DeviceState>],
    notable_share: f64,
) {
    let Some(window) = window(steps) else { return };
    let ranks = steps.iter().map(|step| step.ranks.len()).max().unwrap_or(0);
    let hosts_finding = match slow_hosts(hosts, ranks, window) {
        Some(slowed) => finding_on_hosts(steps, slowed),
        // Such a host would explain why threads are off their processors.
        None => in_passes::find(steps, hosts, window),
    };
    let devices_finding = devices::lowered_on_all(&Samples { ranks: devices, window }, ranks)
        .and_then(|lowered| finding_on_clocks(steps, &lowered));
    for finding in [hosts_finding, devices_finding].into_iter().flatten() {
        let is_notable = finding.verdict.cost_share >= notable_share;
        if is_notable { &mut found.verdicts } else { &mut found.notes }.push(finding);
    }
}

/// Returns the window of the steps on the server's clock.
fn window(steps: &[&StepAnalysis]) -> Option<(ServerNanos, ServerNanos)> {
    Some((steps.first()?.window?.0, steps.last()?.window?.1))
}

/// Picks one of the shares.
type Share = fn(&Shares) -> f64;

/// What takes time from the hosts of all ranks.
#[derive(Clone, Debug)]
struct SlowHosts {
    taker: Taker,
    /// The time that it takes from a rank, as a share of the time: the median over ranks.
    share: f64,
    evidence: Vec<Evidence>,
}

/// Returns what slows all ranks for all of a window, if something does: each of them loses time to it.
fn slow_hosts(hosts: &Hosts<'_>, ranks: usize, window: (ServerNanos, ServerNanos)) -> Option<SlowHosts> {
    let shares = |rank| Shares::rank(hosts, rank, window);
    let all: Vec<Shares> = (0..ranks).map(shares).collect::<Option<_>>()?;
    // The pressure may be that of the whole host. If some ranks read pages back from a disk and others do not, it is theirs.
    let is_of_some = all.iter().any(Shares::pages) && !all.iter().all(Shares::pages);
    let taken = |(taker, share): (Taker, Share)| {
        if taker == Taker::Memory && is_of_some {
            return None;
        }
        let least = all.iter().map(share).fold(f64::INFINITY, f64::min);
        let share = stats::median(all.iter().map(share))?;
        (least >= MIN_SHARE).then_some((taker, share))
    };
    let takers: [(Taker, Share); 3] = [
        (Taker::Limit, |rank| rank.throttled),
        (Taker::Memory, |rank| rank.short_of_memory),
        (Taker::Paging, Shares::paging),
    ];
    let (taker, share) = takers.into_iter().filter_map(taken).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let everyone: Vec<usize> = (0..ranks).collect();
    Some(SlowHosts { taker, share, evidence: Shares::new(hosts, &everyone, window)?.evidence(None) })
}

fn finding_on_hosts(steps: &[&StepAnalysis], slowed: SlowHosts) -> Option<Finding> {
    let period = stats::mean(steps.iter().map(|step| step.period_nanos() as f64))?;
    let mut finding = finding_on_all(steps, slowed.share * period, Cause::Host, Statement::AllAlike)?;
    finding.reason = Some(Reason::SlowsAll(slowed.taker));
    finding.evidence = slowed.evidence;
    finding.counter_evidence.push(Doubt::InAllParts);
    Some(finding)
}

/// Compute takes as much longer as the clock is lower, at most: what waits for memory does not.
fn finding_on_clocks(steps: &[&StepAnalysis], lowered: &LoweredClocks) -> Option<Finding> {
    use wire::live::Part::{Backward, Forward, Optimizer};
    let accounts = steps.iter().filter_map(|step| StepAccount::new(step));
    let compute = |account: StepAccount| {
        [Forward, Backward, Optimizer].map(|part| account.usual(part)).iter().sum::<f64>()
    };
    let cost = lowered.below * stats::mean(accounts.map(compute))?;
    let mut finding = finding_on_all(steps, cost, Cause::ClockThrottle, Statement::AllAlike)?;
    finding.reason = Some(Reason::LoweredClock(lowered.reasons));
    finding.evidence.push(lowered.evidence.clone());
    finding.counter_evidence.push(Doubt::AssumesClockBound);
    Some(finding)
}

#[cfg(test)]
mod tests;
