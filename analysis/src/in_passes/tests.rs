//! Ranks that wait within their passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use timing::clocks::ClockFit;
use wire::clock::MonoNanos;
use wire::event::SpanKind;
use wire::host::{HostFigure, HostSample};
use wire::live::Part;
use wire::views::{Account, Spending};

use super::*;
use crate::fixtures;
use crate::hosts::{HostHistory, RankHost};
use crate::report::{self, RunFacts};
use crate::verdict::tests::{MS, healthy};
use crate::wording;

const SECOND: i64 = 1_000_000_000;

/// Steps whose ranks are off the processor for this long in their forward passes.
fn steps(off: [u64; 4]) -> Vec<StepAnalysis> {
    let mut steps = healthy(200);
    for (at, step) in (0..).zip(&mut steps) {
        let begin = ServerNanos(at * 25 * MS as i64);
        step.window = Some((begin, begin + 25 * MS as i64));
        for (rank, off) in step.ranks.iter_mut().flatten().zip(off) {
            let [forward, backward] = [Part::Forward, Part::Backward].map(|part| rank.part(part));
            rank.processor_nanos[SpanKind::Forward as usize] = forward - off.min(forward);
            rank.processor_nanos[SpanKind::Backward as usize] = backward - off.saturating_sub(forward);
        }
    }
    steps
}

/// A host on which the threads of a rank, and the one that trains, wait for a core for this many milliseconds per second.
fn host(all: u64, training: Option<u64>) -> Option<RankHost> {
    let mut history = HostHistory::default();
    let figures = [
        (HostFigure::Interval, Some(1_000)),
        (HostFigure::Capacity, Some(1_000)),
        (HostFigure::Ran, Some(700)),
        (HostFigure::Busy, Some(720)),
        (HostFigure::Stolen, Some(0)),
        (HostFigure::Waited, Some(all)),
        (HostFigure::MainWaited, training),
    ];
    for at in 1..=10 {
        let known = figures.into_iter().filter_map(|(figure, millis)| Some((figure, millis? * MS)));
        let figures: BTreeMap<HostFigure, u64> = known.collect();
        history.add(&HostSample { at: MonoNanos(at * SECOND), cores: "0".into(), figures });
    }
    Some(RankHost { pid: 1, history: Arc::new(history) })
}

fn found(off: [u64; 4], all: u64, training: Option<u64>) -> Option<Finding> {
    let (steps, hosts) = (steps(off), [(); 4].map(|()| host(all, training)));
    let (observed, fits): (Vec<&StepAnalysis>, _) = (steps.iter().collect(), [Some(ClockFit::exact()); 4]);
    let window = (observed.first()?.window?.0, observed.last()?.window?.1);
    find(&observed, &Hosts { ranks: &hosts, fits: &fits }, window)
}

#[test]
fn time_off_the_processor_that_no_wait_for_a_core_explains_is_a_verdict_on_all() {
    let finding = found([5 * MS, 6 * MS, 5 * MS, 6 * MS], 20, Some(10)).unwrap();
    let verdict = wording::verdict(finding).sentence;
    assert!(
        verdict.starts_with("All ranks wait within the forward and backward pass for something other than a core, which costs 4."),
        "{verdict}"
    );
}

#[test]
fn ranks_that_share_cores_wait_for_nothing_else() {
    assert_eq!(found([5 * MS, 6 * MS, 5 * MS, 6 * MS], 300, Some(200)), None);
    // The threads that compute for the one that trains wait for cores.
    assert_eq!(found([5 * MS, 6 * MS, 5 * MS, 6 * MS], 300, Some(10)), None);
}

#[test]
fn what_one_rank_waits_for_is_no_loss_of_all() {
    assert_eq!(found([0, 6 * MS, 0, 0], 20, Some(10)), None);
}

#[test]
fn nothing_is_said_where_it_is_not_known_which_thread_trains() {
    assert_eq!(found([5 * MS, 6 * MS, 5 * MS, 6 * MS], 20, None), None);
}

#[test]
fn the_account_tells_these_waits_from_compute() {
    let facts = RunFacts {
        ranks: 4,
        hosts: [(); 4].map(|()| host(20, Some(10))).to_vec(),
        fits: vec![Some(ClockFit::exact()); 4],
        ..fixtures::facts("waits")
    };
    let undisturbed = report::report(&facts, &steps([0; 4])).account;
    let waiting = report::report(&facts, &steps([5 * MS, 6 * MS, 5 * MS, 6 * MS]));
    let cost = waiting.verdicts[0].cost_nanos_per_step * waiting.steps;
    assert!(
        waiting.account.nanos_of(Spending::WaitsInPasses).abs_diff(cost) <= waiting.steps,
        "{:?}",
        waiting.account
    );
    let all = |account: &Account| account.entries.iter().map(|entry| entry.nanos).sum::<u64>();
    assert_eq!(
        (all(&waiting.account), undisturbed.nanos_of(Spending::WaitsInPasses)),
        (all(&undisturbed), 0)
    );
    assert!(waiting.spent.contains("waits within passes"), "{}", waiting.spent);
}
