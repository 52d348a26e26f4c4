//! What hosts show: a rank loses time because other processes use its cores, or because memory is short.

use wire::clock::ServerNanos;
use wire::views::{Cause, Culprit, Persistence, Verdict};

use crate::finding::{Evidence, Finding, Reason, Statement, Taker};
use crate::hosts::{EXPLAINS, Hosts, MIN_SHARE, Shares};
use crate::stats;

/// The largest share of a step that slower compute on contended cores costs. Of two hardware threads of a core, each runs at half the
/// speed of one alone, or faster.
const CONTENTION: f64 = 0.5;

/// The largest factor by which contended cores make something take longer on one rank than on the others, which wait for cores too.
const STRETCHES_BY: f64 = 4.0;

/// Adds evidence of who used the ranks' cores in `window` to a finding with the cause host or processor. If steal
/// explains slow compute, changes the cause to host. Leaves any other finding unchanged, because use of the cores is no
/// evidence of, for example, a slow network.
pub(super) fn explain(finding: &mut Finding, hosts: &Hosts<'_>, window: (ServerNanos, ServerNanos)) {
    let suspects: Vec<usize> = match &finding.verdict.culprit {
        None => return,
        Some(Culprit::All) => (0..hosts.ranks.len()).collect(),
        Some(named) => named.ranks().iter().map(|&rank| rank as usize).collect(),
    };
    let Some(shares) = Shares::new(hosts, &suspects, window) else { return };
    correct_turns(finding, &shares);
    let Verdict { cost_share, persistence, .. } = finding.verdict;
    // A recurring fault has only some of the steps between its first and its last one.
    let lost_share = match persistence {
        Some(Persistence::Recurring) => {
            finding.verdict.lost_nanos() as f64 / (window.1 - window.0).max(1) as f64
        }
        _ => cost_share,
    };
    if matches!(finding.verdict.cause, Cause::Processor | Cause::Compute)
        && is_stolen(cost_share, hosts, &suspects, &shares, window)
    {
        finding.verdict.cause = Cause::Host;
        finding.reason = Some(Reason::Steal);
    }
    let is_of_all = finding.verdict.culprit == Some(Culprit::All);
    if is_of_all
        && matches!(finding.verdict.cause, Cause::Processor | Cause::Compute)
        && matches!(finding.statement, Statement::Slower { .. })
        && let Some(taker) = shares.slows(lost_share)
    {
        (finding.verdict.cause, finding.reason) = (Cause::Host, Some(Reason::CoresTaken(taker)));
    }
    if is_of_all && !matches!(finding.verdict.cause, Cause::Host | Cause::Processor) {
        finding.evidence.extend(shares.limits());
    }
    if finding.evidence.iter().any(|evidence| matches!(evidence, Evidence::CoreUse(_))) {
        // The finding was made from the same samples.
        return;
    }
    let is_unexplained = |finding: &Finding| finding.verdict.cause == Cause::Host && finding.reason.is_none();
    if is_unexplained(finding) && finding.is_outside_phases() {
        finding.reason = Some(Reason::OutsidePhases);
    }
    let comes_and_goes = match finding.statement {
        Statement::Slower { .. } => true,
        // Ranks on the same cores have no network of their own.
        _ if finding.verdict.cause == Cause::Network => true,
        _ => persistence.is_some_and(|persistence| persistence != Persistence::Persistent),
    };
    let shares_cores = comes_and_goes && hosts.share_cores();
    finding.is_scatter |= shares_cores && is_slowed_by_others(finding, &shares, lost_share);
    if matches!(finding.verdict.cause, Cause::Host | Cause::Processor) || finding.is_scatter {
        let cores = match suspects[..] {
            [rank] => hosts.get(rank).map(|(host, _)| host.history.cores.clone()),
            _ => None,
        };
        finding.evidence.extend(shares.evidence(cores));
    }
    if is_unexplained(finding) && !finding.stops_in_code() {
        let usual = usual_share(hosts, &suspects, window, |rank| rank.waited).unwrap_or(0.0);
        finding.reason = shares.taker(lost_share, usual).map(Reason::CoresTaken);
    }
    let usual_wait = || usual_share(hosts, &suspects, window, Shares::training_waited_at_most);
    if may_wait_in_own_code(finding) && shares.waits_longer(lost_share, usual_wait().unwrap_or(0.0)) {
        finding.reason = shares.taker(lost_share, 0.0).map(Reason::CoresTaken).or(finding.reason);
    }
    // Others that use the cores of all ranks do not explain why the same rank should be late.
    let is_taken = matches!(finding.reason, Some(Reason::CoresTaken(Taker::Processes | Taker::Ranks)));
    finding.is_scatter |= is_taken && shares_cores;
}

/// Corrects a finding that ranks are kept off their processors in turn, if their training threads waited for no core: then they were off
/// the processors for another reason.
fn correct_turns(finding: &mut Finding, shares: &Shares) {
    let is_kept_off = finding.statement == Statement::Turns { kept_off_processors: true };
    if is_kept_off && shares.training_waited.is_some_and(|waited| waited < MIN_SHARE) {
        finding.statement = Statement::Turns { kept_off_processors: false };
        finding.verdict.cause = Cause::Unknown;
        finding.evidence.retain(|evidence| !matches!(evidence, Evidence::RanksOffProcessor { .. }));
    }
}

/// Returns true if a line of the rank's own code may only show where its training thread waits for a core.
fn may_wait_in_own_code(finding: &Finding) -> bool {
    finding.verdict.cause == Cause::Host && finding.reason == Some(Reason::OwnCode)
}

/// Returns true if other processes use so much of the cores that a rank may be slow for it, although it is on a processor: two
/// threads that share a core, its caches or its memory slow each other. A line of the rank's own code is a better reason.
fn is_slowed_by_others(finding: &Finding, shares: &Shares, lost_share: f64) -> bool {
    let (verdict, least) = (&finding.verdict, MIN_SHARE.max(EXPLAINS * lost_share));
    let may_be = match (verdict.cause, finding.reason) {
        (Cause::Processor | Cause::Network, None) => true,
        (Cause::Compute, None) => verdict.cost_share <= CONTENTION,
        // How much of this time the thread was on a processor is not measured. A rank that sleeps waits for no core.
        (Cause::Host, Some(Reason::OutsidePhases)) | (Cause::Input, None) => {
            let is_late = matches!(finding.statement, Statement::Late { .. });
            is_late
                && !finding.names_own_line()
                && finding.is_stretched(STRETCHES_BY)
                && shares.waited >= least
        }
        _ => false,
    };
    may_be && shares.others >= least
}

/// Returns the median of a share over the ranks that are not suspected; `None` if it is known of none.
fn usual_share(
    hosts: &Hosts<'_>,
    suspects: &[usize],
    window: (ServerNanos, ServerNanos),
    share: fn(&Shares) -> f64,
) -> Option<f64> {
    let others = (0..hosts.ranks.len()).filter(|rank| !suspects.contains(rank));
    stats::median(others.filter_map(|rank| Shares::rank(hosts, rank, window).as_ref().map(share)))
}

/// Returns true if the hypervisor takes so much more of these ranks' cores than of the other ranks' that it explains
/// the cost.
fn is_stolen(
    cost_share: f64,
    hosts: &Hosts<'_>,
    suspects: &[usize],
    shares: &Shares,
    window: (ServerNanos, ServerNanos),
) -> bool {
    let usual = usual_share(hosts, suspects, window, |rank| rank.stolen);
    let more = shares.stolen - usual.unwrap_or(0.0);
    cost_share > 0.0 && more >= EXPLAINS * cost_share
}

#[cfg(test)]
mod tests;
