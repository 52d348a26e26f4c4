//! The sentence of a verdict: who does what, since when, and what it costs.

use wire::device::throttle;
use wire::views::{Cause, Persistence, Verdict, VerdictState};

use super::Who;
use crate::finding::{Evidence, Finding, HostWork, Reason, Segment, Statement, Taker};
use crate::stacks::location;

pub(super) fn sentence(finding: &Finding, who: &Who<'_>) -> String {
    match finding.statement {
        Statement::Late { episodes } => late(finding, who, episodes),
        Statement::NowAndThen { ranks } => now_and_then(finding, who, ranks),
        Statement::Always { ranks } => always(finding, who, ranks),
        Statement::AllAlike => all_alike(finding, who),
        Statement::Grows { segment } => grows(finding, who, segment),
        Statement::Restarted { recovery_nanos, repeated_nanos } => {
            restarted(finding, recovery_nanos, repeated_nanos)
        }
        Statement::StartedLate { others_waited } => started_late(finding, who, others_waited),
        Statement::InRecordedSteps { steps, mostly_hidden } => {
            recorded_slowness(finding, who, steps, mostly_hidden)
        }
        Statement::LongestOfGroup { nanos } => longest_of_group(finding, who, nanos),
        Statement::MostlyFor { rank } => mostly_for(finding, rank),
        Statement::Turns { kept_off_processors } => turns(finding, who, kept_off_processors),
        Statement::Slower { share } => slower(finding, who, share),
    }
}

/// Returns the cost per step in words, and its share of the step.
fn cost(verdict: &Verdict) -> (String, String) {
    (units::nanos(verdict.cost_nanos_per_step as f64), units::percent(verdict.cost_share))
}

fn late(finding: &Finding, who: &Who<'_>, episodes: usize) -> String {
    let (verdict, place) = (&finding.verdict, place(finding));
    let (name, does) = (who.name(), does(finding, who));
    let (first, last) = (units::count(verdict.steps.0), units::count(verdict.steps.1));
    let (cost, share) = cost(verdict);
    let sentence = match (verdict.state, verdict.persistence) {
        (VerdictState::Active, Some(Persistence::Onset)) => {
            format!(
                "from step {first} on, {name} {does}, which costs {cost} per step ({share} of step time){place}."
            )
        }
        (VerdictState::Active, _) => {
            format!("{name} {does}, which costs {cost} per step ({share} of step time){place}.")
        }
        (VerdictState::Resolved, _) if episodes < 2 => format!(
            "{name} {does} from step {first} to {last}, which cost {cost} per step ({share} of step time){place}. The fault is \
             over."
        ),
        _ => repeatedly(verdict, &name, &does, &place),
    };
    units::capitalized(&sentence)
}

/// Says what ranks do in some of the steps between the first and the last one.
fn repeatedly(verdict: &Verdict, name: &str, does: &str, place: &str) -> String {
    let (first, last) = (units::count(verdict.steps.0), units::count(verdict.steps.1));
    let (cost, share) = cost(verdict);
    let (costs, end) = match verdict.state {
        VerdictState::Resolved => ("cost", " The fault is over."),
        _ => ("costs", ""),
    };
    format!(
        "{name} repeatedly {does}, which {costs} {cost} ({share} of step time) in each of {} steps between {first} and \
         {last}{place}.{end}",
        units::count(verdict.affected_steps)
    )
}

/// Says what happens now and then, when, for how long, and what it costs of all time.
fn now_and_then(finding: &Finding, who: &Who<'_>, ranks: usize) -> String {
    let verdict = &finding.verdict;
    let Some(recurrence) = &verdict.recurrence else { return always(finding, who, ranks) };
    let share = units::percent(recurrence.share_of_time);
    let nanos = units::nanos(recurrence.nanos as f64);
    let waits = waits(finding, who, ranks);
    let when = match (recurrence.times, recurrence.every_steps) {
        (1, _) => format!("in step {}", units::count(verdict.steps.0)),
        (_, Some(every)) => format!("every {} steps", units::count(every)),
        (times, None) => format!("{} times", units::count(times)),
    };
    let cost_each_time = match (recurrence.times, recurrence.every_steps) {
        (1, _) => format!("{nanos}, {share} of the time"),
        (times, Some(_)) => {
            format!("{nanos} each time, {} times, {share} of the time", units::count(times))
        }
        (_, None) => format!("{nanos} each time, {share} of the time"),
    };
    units::capitalized(&format!(
        "{} {} {when}{waits}: {cost_each_time}{}.",
        who.name(),
        does(finding, who),
        place(finding)
    ))
}

/// Says what takes ranks time in most steps, and is a pause.
fn always(finding: &Finding, who: &Who<'_>, ranks: usize) -> String {
    let (cost, share) = cost(&finding.verdict);
    units::capitalized(&format!(
        "{} {} in most steps{}, which costs {cost} per step ({share} of step time){}.",
        who.name(),
        does(finding, who),
        waits(finding, who, ranks),
        place(finding)
    ))
}

/// Returns what the ranks that are not named do meanwhile.
fn waits(finding: &Finding, who: &Who<'_>, ranks: usize) -> &'static str {
    let is_over = finding.verdict.state == VerdictState::Resolved;
    match (who.ranks.len(), ranks.saturating_sub(who.ranks.len()), is_over) {
        (0, ..) | (_, 0, _) => "",
        (_, 1, false) => " while the other rank waits",
        (_, 1, true) => " while the other rank waited",
        (_, _, false) => " while the other ranks wait",
        (_, _, true) => " while the other ranks waited",
    }
}

/// Says what all ranks spend much time on in every step.
fn all_alike(finding: &Finding, who: &Who<'_>) -> String {
    let (cost, share) = cost(&finding.verdict);
    let (waits, are, its) = (who.choose("waits", "wait"), who.choose("is", "are"), who.its());
    let what = match finding.verdict.cause {
        Cause::Input => format!("{waits} for {its} input"),
        Cause::H2d => format!("{waits} for copies of {its} input to the device"),
        Cause::Optimizer => format!("{are} in the optimizer"),
        Cause::ClockThrottle => return lowered_clocks(finding, who),
        Cause::Host if matches!(finding.reason, Some(Reason::SlowsAll(_) | Reason::DevicesWait(_))) => {
            return slowed(finding, who);
        }
        Cause::Host if finding.reason == Some(Reason::WaitsInPasses) => {
            format!("{waits} within the forward and backward pass for something other than a core")
        }
        Cause::Communication => format!("{waits} for collectives that the backward pass does not hide"),
        _ => format!("{are} outside the passes, the input and the optimizer"),
    };
    let least = if finding.is_least() { "at least " } else { "" };
    units::capitalized(&format!(
        "{} {what}, which costs {least}{cost} per step ({share} of step time){}.",
        who.name(),
        place(finding)
    ))
}

/// Says how often the job was restarted, and what each time cost.
fn restarted(finding: &Finding, recovery: f64, repeated: f64) -> String {
    let verdict = &finding.verdict;
    let (cost_each_time, share) = cost(verdict);
    let (times, total) = match verdict.affected_steps {
        1 => ("once".into(), "which cost"),
        times => (format!("{} times", units::count(times)), "and each time cost"),
    };
    let parts = match repeated > 0.0 {
        true => format!(
            "{} until the first step and {} of steps done again",
            units::nanos(recovery),
            units::nanos(repeated)
        ),
        false => "until the first step".into(),
    };
    format!("The job was restarted {times}, {total} {cost_each_time} ({parts}): {share} of the wall time.")
}

fn started_late(finding: &Finding, who: &Who<'_>, others_waited: Option<f64>) -> String {
    let (nanos, share) = cost(&finding.verdict);
    let waited = others_waited.map(units::nanos);
    let waited = waited
        .map_or_else(String::new, |waited| format!("; the other ranks waited {waited} for {}", who.name()));
    format!("The job took {nanos} to reach its first step, {share} of the wall time so far{waited}.")
}

/// Says what grows, from when to when, how fast, and what it costs.
fn grows(finding: &Finding, who: &Who<'_>, segment: Option<Segment>) -> String {
    let verdict = &finding.verdict;
    let ((cost, share), (first, last)) = (cost(verdict), verdict.steps);
    let Some(growth) = verdict.growth else { return late(finding, who, 1) };
    let part = segment.map_or_else(
        || format!("{} own work", who.its()),
        |segment| format!("the {}", super::evidence::name(segment)),
    );
    units::capitalized(&format!(
        "{} {} slower and slower: {part} grew from {} to {} over steps {} to {}, by {} per 1,000 steps, which costs {cost} per step \
         so far ({share} of step time){}.",
        who.name(),
        who.choose("becomes", "become"),
        units::nanos(growth.from_nanos),
        units::nanos(growth.to_nanos),
        units::count(first),
        units::count(last),
        units::nanos(growth.nanos_per_thousand_steps),
        place(finding)
    ))
}

fn lowered_clocks(finding: &Finding, who: &Who<'_>) -> String {
    let (cost, share) = cost(&finding.verdict);
    let why = match finding.reason {
        Some(Reason::LoweredClock(reasons)) => format!(" ({})", throttle::names(reasons).join(", ")),
        _ => String::new(),
    };
    let (computes, gpus) =
        (who.choose("computes", "compute"), who.choose("GPU lowered its clock", "GPUs lowered their clocks"));
    units::capitalized(&format!(
        "{} {computes} more slowly because {} {gpus}{why}, which costs up to {cost} per step ({share} of step time).",
        who.name(),
        who.its()
    ))
}

/// Says what takes time from all ranks alike, and why their devices have nothing to do.
fn slowed(finding: &Finding, who: &Who<'_>) -> String {
    let ((cost, share), on) = (cost(&finding.verdict), format!("on {}", who.name()));
    let what = match finding.reason {
        Some(Reason::SlowsAll(taker)) => {
            format!("{} {} time to {}", who.name(), who.choose("loses", "lose"), name(taker, who.its()))
        }
        Some(Reason::DevicesWait(Some(HostWork::Synchronizes))) => {
            format!(
                "{on} the device waits for the host after the host has waited for the device (synchronization)"
            )
        }
        Some(Reason::DevicesWait(Some(HostWork::Launches))) => {
            format!(
                "{on} the device waits for the host, which launches its kernels more slowly than they run"
            )
        }
        Some(Reason::DevicesWait(Some(HostWork::Code))) => {
            format!("{on} the device waits for the host, which runs code outside of operators")
        }
        _ => format!("{on} the device waits for the host"),
    };
    units::capitalized(&format!(
        "{what}, which costs {cost} per step ({share} of step time){}.",
        place(finding)
    ))
}

/// Returns where in the code the time is spent, if stacks show it.
fn place(finding: &Finding) -> String {
    let place = finding.evidence.iter().find_map(|evidence| match evidence {
        // Any line may be the one in which a rank waits for a core.
        Evidence::InCode { .. } if matches!(finding.reason, Some(Reason::CoresTaken(_))) => None,
        // Where other ranks are as well, the line does not say why this one is late.
        Evidence::InCode { place, .. } if finding.verdict.cause.is_slow_compute() && place.is_common() => {
            None
        }
        Evidence::InCode { place, .. } => Some(place.location()),
        Evidence::Called { frame, .. } => Some(location(frame)),
        _ => None,
    });
    place.map_or_else(String::new, |at| format!(", in {at}"))
}

fn recorded_slowness(finding: &Finding, who: &Who<'_>, steps: usize, mostly_hidden: Option<f64>) -> String {
    let (name, does, (cost, share)) = (who.name(), does(finding, who), cost(&finding.verdict));
    let recorded = match steps {
        1 => "the only recorded step".into(),
        _ => format!("the {steps} recorded steps"),
    };
    let hidden = mostly_hidden.map_or_else(String::new, |late| {
        format!(
            " It starts its collectives {} per step later than the rank before it, and the rest of that costs nothing: the other ranks have \
             other work or other waits meanwhile.",
            units::nanos(late)
        )
    });
    units::capitalized(&format!(
        "in {recorded}, {name} {does}, which costs {cost} per step ({share} of step time){}.{hidden}",
        place(finding)
    ))
}

/// Returns what the ranks do, or did if the fault is over.
fn does(finding: &Finding, who: &Who<'_>) -> String {
    let (verdict, its) = (&finding.verdict, who.its());
    let computes = ["computes", "compute", "computed"];
    // The verb for one rank now, for several ranks now, and for a fault that is over; then the rest of the phrase.
    let ([single, several, past], rest) = match (verdict.cause, finding.reason) {
        (Cause::Input, _) => (["waits", "wait", "waited"], format!("for {its} input")),
        (Cause::H2d, _) => (["copies", "copy", "copied"], format!("{its} input to the device slowly")),
        (Cause::MoreWork, _) => (["has", "have", "had"], "more work than the others".into()),
        (Cause::Network, _) => {
            (["gets", "get", "got"], format!("{its} reduced gradients later than the others"))
        }
        (_, Some(Reason::OwnCode)) => {
            (["spends", "spend", "spent"], format!("more time than the others in {its} own code"))
        }
        (Cause::Host, None | Some(Reason::OutsidePhases))
            if matches!(finding.statement, Statement::NowAndThen { .. }) =>
        {
            (["stops", "stop", "stopped"], String::new())
        }
        (Cause::Host, Some(Reason::Steal)) => (computes, format!("more slowly while {}", stolen(its))),
        (Cause::Host, Some(Reason::CoresTaken(taker))) => {
            (["loses", "lose", "lost"], format!("time to {}", name(taker, its)))
        }
        (Cause::Host, Some(Reason::OutsidePhases)) => (
            ["is", "are", who.choose("was", "were")],
            "late because of what it does outside of the passes, the input and the optimizer"
                .replace("it does", who.choose("it does", "they do")),
        ),
        (Cause::Host, _) => {
            (["loses", "lose", "lost"], format!("time on {its} {}", who.choose("host", "hosts")))
        }
        (Cause::Processor, _) => (computes, "on a slower processor".into()),
        (Cause::ClockThrottle, Some(Reason::LoweredClock(reasons))) => {
            let why = throttle::names(reasons).join(", ");
            (computes, format!("more slowly because {its} GPU lowered its clock ({why})"))
        }
        (Cause::Compute, _) if matches!(finding.statement, Statement::NowAndThen { .. }) => {
            (computes, "longer than usual".into())
        }
        (Cause::Compute | Cause::ClockThrottle, _) => (computes, "more slowly than the others".into()),
        (Cause::Unknown, Some(Reason::OnlyCollectives)) => (
            ["is", "are", who.choose("was", "were")],
            format!(
                "late because of {its} compute or {its} {} (it is not recorded which)",
                who.choose("host", "hosts")
            ),
        ),
        (Cause::Optimizer, _) => {
            (["is", "are", who.choose("was", "were")], "in the optimizer for long".into())
        }
        (Cause::Checkpoint, _) => (["writes", "write", "wrote"], "a checkpoint".into()),
        (Cause::Evaluation, _) => (["evaluates", "evaluate", "evaluated"], "the model".into()),
        (Cause::GarbageCollection, _) => (["collects", "collect", "collected"], "garbage".into()),
        (Cause::Compilation, _) => (["compiles", "compile", "compiled"], "code".into()),
        (Cause::Hang, _) if who.ranks.is_empty() => (["stops", "stop", "stopped"], String::new()),
        (Cause::Restart, _) => (["is", "are", who.choose("was", "were")], "restarted".into()),
        (Cause::Start, _) => (["starts", "start", "started"], "late".into()),
        (Cause::Hang, _) => (["holds", "hold", "held"], "the job up".into()),
        (Cause::Communication | Cause::Unknown, _) => (
            ["is", "are", who.choose("was", "were")],
            "late for a reason that the records do not show".into(),
        ),
    };
    let verb = if verdict.state == VerdictState::Resolved { past } else { who.choose(single, several) };
    if rest.is_empty() { verb.to_owned() } else { format!("{verb} {rest}") }
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

fn mostly_for(finding: &Finding, rank: u32) -> String {
    let (cost, share) = cost(&finding.verdict);
    format!(
        "Ranks wait for each other, mostly for rank {rank}, which costs {cost} per step ({share} of step time)."
    )
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
        _ => "the time that they compute varies from step to step".into(),
    };
    format!("Ranks take turns at being last, which costs {cost} per step ({share} of step time): {why}.")
}

fn slower(finding: &Finding, who: &Who<'_>, rise: f64) -> String {
    let (cost, share) = cost(&finding.verdict);
    let why = match (finding.verdict.cause, finding.reason) {
        (Cause::Host, Some(Reason::Steal)) => format!(" while {}", stolen(who.its())),
        (Cause::Host, Some(Reason::CoresTaken(taker))) => {
            format!(" because {} {} them off their processors", name(taker, who.its()), keeps(taker))
        }
        (Cause::ClockThrottle, Some(Reason::LoweredClock(reasons))) => {
            format!(" because their GPUs lowered their clocks ({})", throttle::names(reasons).join(", "))
        }
        (Cause::Host, _) => " because they are kept off their processors".into(),
        _ => String::new(),
    };
    units::capitalized(&format!(
        "{} {} {} longer from step {} on{why}, which costs {cost} per step ({share} of step time).",
        who.name(),
        who.choose("computes", "compute"),
        units::percent(rise),
        units::count(finding.verdict.steps.0)
    ))
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
