//! Tests of what host histories change in verdicts.

use std::collections::BTreeMap;
use std::sync::Arc;

use timing::clocks::ClockFit;
use wire::clock::MonoNanos;
use wire::host::{HostFigure, HostSample};

use super::*;
use crate::finding::Segment;
use crate::hosts::{HostHistory, RankHost};
use crate::verdict::fixture::finding_on_rank_1;
use crate::wording;

const SECOND: i64 = 1_000_000_000;

/// Returns a sample of the second that ends at `at` on one core. `millis` gives the figures in milliseconds, and counts as they
/// are; interval and capacity are added.
fn sample(at: i64, cores: &str, millis: &[(HostFigure, u64)]) -> HostSample {
    let whole = [(HostFigure::Interval, 1_000), (HostFigure::Capacity, 1_000)];
    let figures = whole.iter().chain(millis).map(|&(figure, value)| match figure {
        MajorFaults => (figure, value),
        _ => (figure, value * 1_000_000),
    });
    HostSample {
        at: MonoNanos(at * SECOND),
        cores: cores.into(),
        figures: figures.collect::<BTreeMap<_, _>>(),
    }
}

fn rank(pid: u32, cores: &str, millis: &[(HostFigure, u64)]) -> Option<RankHost> {
    let mut history = HostHistory::default();
    (1..=10).for_each(|at| history.add(&sample(at, cores, millis)));
    Some(RankHost { pid, history: Arc::new(history) })
}

fn explained(cause: Cause, ranks: &[Option<RankHost>]) -> Verdict {
    let mut finding = finding_on_rank_1(cause);
    let fits = vec![Some(ClockFit::exact()); ranks.len()];
    explain(&mut finding, &Hosts { ranks, fits: &fits }, (ServerNanos(2 * SECOND), ServerNanos(7 * SECOND)));
    wording::verdict(finding)
}

fn unexplained(cause: Cause) -> Verdict {
    wording::verdict(finding_on_rank_1(cause))
}

use HostFigure::{Busy, IoPressure, MainWaited, MajorFaults, MemoryPressure, Ran, Stolen, Throttled, Waited};

const QUIET: [(HostFigure, u64); 4] = [(Ran, 900), (Busy, 910), (Stolen, 0), (Waited, 10)];

#[test]
fn other_processes_on_the_cores_of_a_rank_are_named() {
    let taken = [(Ran, 400), (Busy, 990), (Stolen, 0), (Waited, 580)];
    let found = explained(Cause::Host, &[rank(7, "0", &QUIET), rank(8, "1", &taken)]);
    assert_eq!(
        found.sentence,
        "Rank 1 loses time to other processes on its cores, which costs 5.00 ms per step (10.0 % of step time)."
    );
    assert_eq!(
        found.evidence,
        [
            "its cores (1) were used by: itself 40.0 %, other processes 59.0 %, the hypervisor (steal) 0 %",
            "its threads waited for a core 0.58 s per second (sum over all threads of a process)",
        ]
    );
}

#[test]
fn other_ranks_on_the_same_cores_are_distinguished_from_other_processes() {
    let shared = [(Ran, 480), (Busy, 1_000), (Stolen, 0), (Waited, 500)];
    // Ranks 0 and 2 are one process with two devices.
    let ranks = [rank(7, "1", &shared), rank(8, "1", &shared), rank(7, "1", &shared)];
    let found = explained(Cause::Host, &ranks);
    assert!(found.sentence.contains("loses time to other ranks on its cores"), "{}", found.sentence);
    assert!(
        found.evidence[0].contains("itself 48.0 %, other ranks 48.0 %, other processes 4.0 %"),
        "{found:?}"
    );
}

#[test]
fn busy_cores_are_not_blamed_for_more_than_the_threads_waited_for_them() {
    let idle = [(Ran, 300), (Busy, 1_000), (Stolen, 0), (Waited, 60)];
    let mut finding = finding_on_rank_1(Cause::Host);
    finding.verdict.cost_share = 0.6;
    let ranks = [rank(7, "0", &QUIET), rank(8, "1", &idle)];
    let fits = vec![Some(ClockFit::exact()); 2];
    explain(&mut finding, &Hosts { ranks: &ranks, fits: &fits }, (ServerNanos(0), ServerNanos(10 * SECOND)));
    let found = wording::verdict(finding);
    assert!(found.sentence.contains("loses time on its host"), "{}", found.sentence);
}

#[test]
fn a_cpu_limit_is_named() {
    let limited = [(Ran, 500), (Busy, 520), (Stolen, 0), (Waited, 20), (Throttled, 450)];
    let found = explained(Cause::Host, &[None, rank(8, "1", &limited)]);
    assert!(found.sentence.contains("loses time to its CPU limit (cgroup)"), "{}", found.sentence);
    assert_eq!(found.evidence[1], "its CPU limit (cgroup) kept a process from running for 0.45 s per second");
}

#[test]
fn a_lack_of_memory_is_named() {
    let short = [(Ran, 400), (Busy, 420), (Stolen, 0), (Waited, 20), (MemoryPressure, 480)];
    let found = explained(Cause::Host, &[rank(7, "0", &QUIET), rank(8, "1", &short)]);
    assert!(found.sentence.contains("loses time to a lack of memory"), "{}", found.sentence);
    let says = "tasks waited for memory to be reclaimed or read back for 480 ms per second (pressure, PSI)";
    assert!(found.evidence.iter().any(|sentence| sentence == says), "{:?}", found.evidence);
    let little = [(Ran, 400), (Busy, 420), (Stolen, 0), (Waited, 20), (MemoryPressure, 20)];
    let found = explained(Cause::Host, &[None, rank(8, "1", &little)]);
    assert!(found.sentence.contains("loses time on its host"), "{}", found.sentence);
}

#[test]
fn pages_that_are_read_from_disk_are_named_if_they_are_the_ranks_own() {
    let found = |faults: u64| {
        let waited =
            [(Ran, 400), (Busy, 420), (Stolen, 0), (Waited, 20), (IoPressure, 300), (MajorFaults, faults)];
        explained(Cause::Host, &[rank(7, "0", &QUIET), rank(8, "1", &waited)])
    };
    let paged = found(150);
    assert!(paged.sentence.contains("loses time to pages that are read from disk"), "{}", paged.sentence);
    let says = "150 major page faults per second, while tasks waited for disks for 300 ms per second (pressure, PSI)";
    assert!(paged.evidence.iter().any(|sentence| sentence == says), "{:?}", paged.evidence);
    assert!(found(3).sentence.contains("loses time on its host"), "another process used the disk");
}

#[test]
fn steal_is_the_cause_of_slow_compute_only_if_it_explains_the_cost() {
    let stolen = |millis| [(Ran, 900), (Busy, 905), (Stolen, millis), (Waited, 0)];
    let says = "computes on a slower processor";
    let found = explained(Cause::Processor, &[rank(7, "0", &QUIET), rank(8, "1", &stolen(90))]);
    assert_eq!(found.cause, Cause::Host);
    assert!(
        found.sentence.starts_with(
            "Rank 1 computes more slowly while the hypervisor takes time from its cores (steal)"
        )
    );
    let little = explained(Cause::Processor, &[rank(7, "0", &QUIET), rank(8, "1", &stolen(20))]);
    assert_eq!((little.cause, little.sentence.contains(says)), (Cause::Processor, true));
    assert!(little.evidence[0].ends_with("the hypervisor (steal) 2.0 %"), "steal is ruled out: {little:?}");
    let both = explained(Cause::Compute, &[rank(7, "0", &stolen(90)), rank(8, "1", &stolen(90))]);
    assert_eq!(both.cause, Cause::Compute, "the other ranks lose as much");
}

#[test]
fn the_sentence_names_what_keeps_ranks_off_their_processors_in_turn() {
    let taken = [(Ran, 400), (Busy, 990), (Stolen, 0), (Waited, 580)];
    let ranks = [rank(7, "0", &QUIET), rank(8, "1", &taken)];
    let mut all = finding_on_rank_1(Cause::Host);
    all.verdict.culprit = Some(Culprit::All);
    all.statement = Statement::Turns { kept_off_processors: true };
    let fits = vec![Some(ClockFit::exact()); 2];
    explain(&mut all, &Hosts { ranks: &ranks, fits: &fits }, (ServerNanos(0), ServerNanos(10 * SECOND)));
    let all = wording::verdict(all);
    assert!(
        all.sentence
            .ends_with(": other processes on their cores keep different ranks off their processors in turn."),
        "{}",
        all.sentence
    );
    let shares =
        "their cores were used by: themselves 65.0 %, other processes 30.0 %, the hypervisor (steal) 0 %";
    assert_eq!(all.evidence[0], shares);
}

#[test]
fn ranks_that_wait_for_no_core_are_not_kept_off_their_processors() {
    let statement = |training: u64| {
        let shares = [(Ran, 400), (Busy, 990), (Stolen, 0), (Waited, 300), (MainWaited, training)];
        let ranks = [rank(7, "0", &shares), rank(8, "1", &shares)];
        let mut all = finding_on_rank_1(Cause::Host);
        all.verdict.culprit = Some(Culprit::All);
        all.statement = Statement::Turns { kept_off_processors: true };
        let fits = [Some(ClockFit::exact()); 2];
        explain(&mut all, &Hosts { ranks: &ranks, fits: &fits }, (ServerNanos(0), ServerNanos(10 * SECOND)));
        (all.statement, all.verdict.cause)
    };
    assert_eq!(statement(250), (Statement::Turns { kept_off_processors: true }, Cause::Host));
    assert_eq!(statement(20), (Statement::Turns { kept_off_processors: false }, Cause::Unknown));
}

#[test]
fn a_rank_whose_training_thread_waits_for_no_core_loses_no_time_to_others() {
    let shares = |training: u64| {
        rank(7, "0", &[(Ran, 400), (Busy, 990), (Stolen, 0), (Waited, 300), (MainWaited, training)])
    };
    let says = |training| explained(Cause::Host, &[shares(training), shares(training)]).sentence;
    assert!(says(290).contains("loses time to other"), "{}", says(290));
    assert!(says(20).starts_with("Rank 1 loses time on its host"), "{}", says(20));
}

#[test]
fn a_line_in_which_a_rank_waits_for_a_core_is_not_the_reason() {
    let reason = |cause, waited: u64, usual: u64| {
        let taken = |waited| [(Ran, 250), (Busy, 990), (Stolen, 0), (Waited, waited), (MainWaited, waited)];
        let ranks = [rank(7, "0", &taken(usual)), rank(8, "1", &taken(waited))];
        let mut finding = finding_on_rank_1(cause);
        finding.reason = Some(Reason::OwnCode);
        let fits = [Some(ClockFit::exact()); 2];
        explain(
            &mut finding,
            &Hosts { ranks: &ranks, fits: &fits },
            (ServerNanos(0), ServerNanos(10 * SECOND)),
        );
        finding.reason
    };
    assert_eq!(reason(Cause::Host, 700, 0), Some(Reason::CoresTaken(Taker::Processes)));
    assert_eq!(reason(Cause::Host, 20, 0), Some(Reason::OwnCode), "it sleeps");
    assert_eq!(reason(Cause::Host, 700, 690), Some(Reason::OwnCode), "the other rank waits as long");
    assert_eq!(reason(Cause::Compute, 700, 0), Some(Reason::OwnCode), "it computes longer");
}

/// Host data is evidence only for the causes that it supports.
#[test]
fn a_busy_host_is_not_evidence_for_another_cause() {
    let taken = [(Ran, 400), (Busy, 990), (Stolen, 0), (Waited, 580)];
    let ranks = [rank(7, "0", &taken), rank(8, "1", &taken)];
    assert_eq!(explained(Cause::Network, &ranks), unexplained(Cause::Network));
}

#[test]
fn missing_or_unremarkable_host_data_changes_no_verdict() {
    for ranks in [vec![], vec![None, None], vec![rank(7, "0", &QUIET), rank(8, "1", &QUIET)]] {
        assert_eq!(explained(Cause::Compute, &ranks), unexplained(Cause::Compute));
    }
}

#[test]
fn steal_that_slows_all_ranks_is_in_the_sentence() {
    let stolen = [(Ran, 900), (Busy, 905), (Stolen, 90), (Waited, 0)];
    let ranks = [rank(7, "0", &stolen), rank(8, "1", &stolen)];
    let mut all = finding_on_rank_1(Cause::Processor);
    all.verdict.culprit = Some(Culprit::All);
    all.statement = Statement::Slower { share: 0.12 };
    let fits = vec![Some(ClockFit::exact()); 2];
    explain(&mut all, &Hosts { ranks: &ranks, fits: &fits }, (ServerNanos(0), ServerNanos(10 * SECOND)));
    let all = wording::verdict(all);
    assert_eq!(all.cause, Cause::Host);
    assert_eq!(
        all.sentence,
        "All ranks compute 12.0 % longer from step 2 on while the hypervisor takes time from their cores (steal), which \
         costs 5.00 ms per step (10.0 % of step time)."
    );
}

/// Returns whether a finding on rank 1, which costs 10 % of the step for a while, is a note for ranks that share two cores: each runs for
/// 40 % of the time, and other processes use as much of the cores as `others` milliseconds per second.
fn is_scatter(cause: Cause, others: u64, change: impl Fn(&mut Finding)) -> bool {
    let used = [(Ran, 400), (Busy, 800 + others), (Stolen, 0), (Waited, 300)];
    let (ranks, fits) = ([rank(7, "0-1", &used), rank(8, "0-1", &used)], [Some(ClockFit::exact()); 2]);
    let mut finding = finding_on_rank_1(cause);
    finding.verdict.persistence = Some(Persistence::Transient);
    change(&mut finding);
    explain(&mut finding, &Hosts { ranks: &ranks, fits: &fits }, (ServerNanos(0), ServerNanos(10 * SECOND)));
    finding.is_scatter
}

#[test]
fn slow_compute_on_cores_that_others_use_is_scatter() {
    let is = |others, change: fn(&mut Finding)| is_scatter(Cause::Compute, others, change);
    assert!(is(100, |_| {}));
    assert!(!is(30, |_| {}), "others use too little of the cores");
    assert!(!is(100, |finding| finding.verdict.persistence = Some(Persistence::Persistent)));
    assert!(!is(100, |finding| finding.reason = Some(Reason::OwnCode)), "its stacks show a line of its own");
    assert!(!is(500, |finding| finding.verdict.cost_share = 0.6), "contended cores do not cost as much");
    assert!(is_scatter(Cause::Network, 100, |finding| finding.verdict.persistence =
        Some(Persistence::Persistent)));
    assert!(!is_scatter(Cause::MoreWork, 100, |_| {}));
}

#[test]
fn what_contended_cores_cannot_stretch_so_far_is_no_scatter() {
    let input = |usual: f64| {
        let longer = Evidence::Longer { segment: Segment::Input, nanos: 6.0, usual };
        is_scatter(Cause::Input, 100, move |finding| finding.evidence.push(longer.clone()))
    };
    assert!(input(3.0), "it takes three times as long as on the other ranks");
    assert!(!input(1.0), "it takes seven times as long");
}
