//! The sentence of a verdict: who does what, since when, and what it costs.

use wire::device::throttle;
use wire::views::{Cause, Persistence, Verdict, VerdictState};

use super::Who;
use crate::finding::{Finding, Reason, Statement, Taker};

pub(super) fn sentence(finding: &Finding, who: &Who<'_>) -> String {
    match finding.statement {
        Statement::Late { episodes } => late(finding, who, episodes),
        Statement::Stalls => stalls(finding, who),
        Statement::InRecordedSteps { steps } => in_recorded_steps(finding, who, steps),
        Statement::ExposedTransfers => exposed_transfers(&finding.verdict),
        Statement::LongestOfGroup { nanos } => longest_of_group(finding, who, nanos),
        Statement::Turns { kept_off_processors } => turns(finding, who, kept_off_processors),
        Statement::Slower { share } => slower(finding, who, share),
    }
}

/// Returns the cost per step in words, and its share of the step.
fn cost(verdict: &Verdict) -> (String, String) {
    (units::nanos(verdict.cost_nanos_per_step as f64), units::percent(verdict.cost_share))
}

fn late(finding: &Finding, who: &Who<'_>, episodes: usize) -> String {
    let verdict = &finding.verdict;
    let (name, does) = (who.name(), does(finding, who));
    let (first, last) = (units::count(verdict.steps.0), units::count(verdict.steps.1));
    let (cost, share) = cost(verdict);
    let sentence = match (verdict.state, verdict.persistence) {
        (VerdictState::Active, Some(Persistence::Onset)) => {
            format!(
                "from step {first} on, {name} {does}, which costs {cost} per step ({share} of step time)."
            )
        }
        (VerdictState::Active, _) => {
            format!("{name} {does}, which costs {cost} per step ({share} of step time).")
        }
        (VerdictState::Resolved, _) if episodes < 2 => format!(
            "{name} {does} from step {first} to {last}, which cost {cost} per step ({share} of step time). The fault is \
             over."
        ),
        _ => repeatedly(verdict, &name, &does),
    };
    units::capitalized(&sentence)
}

/// Says what ranks do in some of the steps between the first and the last one.
fn repeatedly(verdict: &Verdict, name: &str, does: &str) -> String {
    let (first, last) = (units::count(verdict.steps.0), units::count(verdict.steps.1));
    let (cost, share) = cost(verdict);
    let (costs, end) = match verdict.state {
        VerdictState::Resolved => ("cost", " The fault is over."),
        _ => ("costs", ""),
    };
    format!(
        "{name} repeatedly {does}, which {costs} {cost} ({share} of step time) in each of {} steps between {first} and \
         {last}.{end}",
        units::count(verdict.affected_steps)
    )
}

fn stalls(finding: &Finding, who: &Who<'_>) -> String {
    let verdict = &finding.verdict;
    let (name, does) = (who.name(), does(finding, who));
    let (cost, share) = cost(verdict);
    let sentence = match verdict.affected_steps {
        1 => format!(
            "in step {}, {name} {does}, which cost {cost} ({share} of the step).",
            units::count(verdict.steps.0)
        ),
        _ => repeatedly(verdict, &name, &does),
    };
    units::capitalized(&sentence)
}

fn in_recorded_steps(finding: &Finding, who: &Who<'_>, steps: usize) -> String {
    let (name, does, (cost, share)) = (who.name(), does(finding, who), cost(&finding.verdict));
    let recorded = match steps {
        1 => "the only recorded step".into(),
        _ => format!("the {steps} recorded steps"),
    };
    units::capitalized(&format!(
        "in {recorded}, {name} {does}, which costs {cost} per step ({share} of step time)."
    ))
}

/// Returns what the ranks do, or did if the fault is over.
fn does(finding: &Finding, who: &Who<'_>) -> String {
    let (verdict, its) = (&finding.verdict, who.its());
    let computes = ["computes", "compute", "computed"];
    // The verb for one rank now, for several ranks now, and for a fault that is over; then the rest of the phrase.
    let ([one, several, past], rest) = match (verdict.cause, finding.reason) {
        (Cause::Input, _) => (["waits", "wait", "waited"], format!("for {its} input")),
        (Cause::H2d, _) => (["copies", "copy", "copied"], format!("{its} input to the device slowly")),
        (Cause::MoreWork, _) => (["has", "have", "had"], "more work than the others".into()),
        (Cause::Network, _) => {
            (["gets", "get", "got"], format!("{its} reduced gradients later than the others"))
        }
        (Cause::Host, Some(Reason::Steal)) => (computes, format!("more slowly while {}", stolen(its))),
        (Cause::Host, Some(Reason::CoresTaken(taker))) => {
            (["loses", "lose", "lost"], format!("time to {}", name(taker, its)))
        }
        (Cause::Host, _) => {
            (["loses", "lose", "lost"], format!("time on {its} {}", who.choose("host", "hosts")))
        }
        (Cause::Processor, _) => (computes, "on a slower processor".into()),
        (Cause::ClockThrottle, Some(Reason::LoweredClock(reasons))) => {
            let why = throttle::names(reasons).join(", ");
            (computes, format!("more slowly because {its} GPU lowered its clock ({why})"))
        }
        (Cause::Compute | Cause::ClockThrottle, _) => (computes, "more slowly than the others".into()),
        (Cause::Unknown, Some(Reason::OnlyCollectives)) => (
            ["is", "are", who.choose("was", "were")],
            format!(
                "late because of {its} compute or {its} {} (it is not recorded which)",
                who.choose("host", "hosts")
            ),
        ),
        (Cause::CollectiveConfiguration | Cause::Unknown, _) => (
            ["is", "are", who.choose("was", "were")],
            "late for a reason that the records do not show".into(),
        ),
    };
    let verb = if verdict.state == VerdictState::Resolved { past } else { who.choose(one, several) };
    format!("{verb} {rest}")
}

fn exposed_transfers(verdict: &Verdict) -> String {
    let (cost, share) = cost(verdict);
    let why = match verdict.cause {
        Cause::CollectiveConfiguration => "a smaller bucket cap would let the last bucket start earlier",
        _ => "transfers take longer than backward can hide",
    };
    format!("All ranks spend {cost} per step ({share} of step time) in exposed transfers: {why}.")
}

/// Says by how much longer a rank computes, and what uneven ranks cost: the replay does not say which part is that of one rank.
fn longest_of_group(finding: &Finding, who: &Who<'_>, nanos: f64) -> String {
    let (cost, share) = cost(&finding.verdict);
    let sentence = format!(
        "{} computes {} per step longer than any other rank of its group; ranks that are slower than others like them cost \
         {cost} per step ({share} of step time).",
        who.name(),
        units::nanos(nanos)
    );
    units::capitalized(&sentence)
}

fn turns(finding: &Finding, who: &Who<'_>, kept_off_processors: bool) -> String {
    let (cost, share) = cost(&finding.verdict);
    let why = match (finding.verdict.cause, finding.reason) {
        (Cause::Host, Some(Reason::CoresTaken(taker))) if kept_off_processors => {
            let (taker, keeps) = (name(taker, who.its()), keeps(taker));
            format!("{taker} {keeps} different ranks off their processors in turn")
        }
        (Cause::Host, _) if kept_off_processors => {
            "their cores are shared, so different ranks are kept off their processors in turn".into()
        }
        (Cause::Host, _) => "different hosts lose time outside every phase in turn".into(),
        (Cause::MoreWork, _) => "the amount of work varies, as with sequence lengths; batch by length".into(),
        (Cause::Input, _) => "input is slow on different ranks in turn".into(),
        _ => "compute time varies from rank to rank for a reason that the records do not show".into(),
    };
    format!("Ranks take turns at being last, which costs {cost} per step ({share} of step time): {why}.")
}

fn slower(finding: &Finding, who: &Who<'_>, by: f64) -> String {
    let (cost, share) = cost(&finding.verdict);
    let why = match (finding.verdict.cause, finding.reason) {
        (Cause::Host, Some(Reason::Steal)) => format!(" while {}", stolen(who.its())),
        (Cause::Host, Some(Reason::CoresTaken(taker))) => {
            format!(" because {} {} them off their processors", name(taker, who.its()), keeps(taker))
        }
        (Cause::Host, _) => " because they are kept off their processors".into(),
        _ => String::new(),
    };
    format!(
        "All ranks compute {} longer from step {} on{why}, which costs {cost} per step ({share} of step time).",
        units::percent(by),
        units::count(finding.verdict.steps.0)
    )
}

fn stolen(its: &str) -> String {
    format!("the hypervisor takes time from {its} cores (steal)")
}

/// Returns what ranks lose time to, as a noun. `its` says whose cores they are.
fn name(taker: Taker, its: &str) -> String {
    match taker {
        Taker::Limit => format!("{its} CPU limit (cgroup)"),
        Taker::Hypervisor => "the hypervisor (steal)".into(),
        Taker::Processes => format!("other processes on {its} cores"),
        Taker::Ranks => format!("other ranks on {its} cores"),
        Taker::Memory => "a lack of memory".into(),
        Taker::Paging => "pages that are read from disk".into(),
    }
}

/// Returns the verb that agrees with [`name`].
fn keeps(taker: Taker) -> &'static str {
    match taker {
        Taker::Limit | Taker::Hypervisor | Taker::Memory => "keeps",
        Taker::Processes | Taker::Ranks | Taker::Paging => "keep",
    }
}
