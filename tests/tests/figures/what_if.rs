//! Tests of replays, and of the dates and kinds of verdicts, against the truth of a simulated job. Every assertion
//! prints its seed.

use testkit::simulator::{FaultKind, Plan, Simulation};
use wire::ids::Rank;
use wire::views::what_if::Fix;
use wire::views::{Cause, Culprit, Persistence, Report, Verdict};

const MS: i64 = 1_000_000;

fn report(simulation: &Simulation) -> Report {
    simulation.received().report(usize::MAX, simulation.end())
}

fn first(seed: u64, report: &Report) -> &Verdict {
    report.verdicts.first().unwrap_or_else(|| panic!("seed {seed}: no verdict"))
}

fn close(seed: u64, found: f64, truth: f64, share: f64) {
    assert!((found - truth).abs() <= share * truth, "seed {seed}: found {found}, true {truth}");
}

#[test]
fn replays_are_accurate_and_give_the_cost_of_a_fault() {
    for seed in 0..20 {
        for kind in FaultKind::ALL {
            let rank = seed as usize % 4;
            // Backward hides most of the delay of a slow network, so it is larger.
            let nanos = if kind == FaultKind::Network { 40 * MS } else { 10 * MS };
            let simulation = Simulation::run(&Plan::small(seed).with_fault(rank, kind, nanos));
            let what_if = report(&simulation).what_if.known().unwrap().clone();
            assert!(what_if.simulation_error < 0.01, "seed {seed} {kind:?}: {what_if:?}");
            let best = what_if.ranks[0];
            assert_eq!(best.fix, Fix::Rank(Rank(rank as u32)), "seed {seed} {kind:?}");
            close(seed, best.nanos_per_step, simulation.cost_nanos_per_step, 0.1);
        }
    }
}

#[test]
fn the_slowdown_is_relative_to_equal_ranks() {
    for seed in 0..10 {
        let simulation = Simulation::run(&Plan::small(seed).with_fault(1, FaultKind::Network, 40 * MS));
        let even = Simulation::run(&Plan { jitter: 0.0, ..Plan::small(seed) });
        let length = |simulation: &Simulation| simulation.steps.last().unwrap().end() as f64;
        let what_if = report(&simulation).what_if.known().unwrap().clone();
        close(seed, what_if.slowdown, length(&simulation) / length(&even), 0.05);
        close(seed, what_if.wasted_share, 1.0 - 1.0 / what_if.slowdown, 1e-9);
    }
}

#[test]
fn ranks_that_are_slow_together_are_named_together() {
    for seed in 0..20 {
        let plan = Plan { ranks: 8, ..Plan::small(seed) }
            .with_fault(2, FaultKind::Compute, 12 * MS)
            .with_fault(5, FaultKind::Compute, 12 * MS);
        let simulation = Simulation::run(&plan);
        let report = report(&simulation);
        let first = first(seed, &report);
        assert_eq!(first.culprit, Some(Culprit::Ranks(vec![2, 5])), "seed {seed}: {first:?}");
        assert_eq!(first.cause, Cause::Compute, "seed {seed}: {first:?}");
        close(seed, first.lost_nanos() as f64 / report.steps as f64, simulation.cost_nanos_per_step, 0.1);
    }
}

#[test]
fn the_onset_of_a_fault_is_dated() {
    for seed in 0..20 {
        let plan = Plan { steps: 300, ..Plan::small(seed) };
        let plan = plan.with_fault_in(170..300, 3, FaultKind::Compute, 8 * MS);
        let report = report(&Simulation::run(&plan));
        let first = first(seed, &report);
        assert_eq!(first.persistence, Some(Persistence::Onset), "seed {seed}: {first:?}");
        let onset = first.onset.unwrap_or_else(|| panic!("seed {seed}: no onset: {first:?}"));
        assert!(onset.verified, "seed {seed}: {onset:?}");
        assert!(onset.step.abs_diff(170) <= 1, "seed {seed}: {onset:?}");
        assert!((onset.earliest..=onset.latest).contains(&170), "seed {seed}: {onset:?}");
        close(seed, onset.after_nanos - onset.before_nanos, 8e6, 0.1);
        let (from, to) = first.steps;
        assert!(from.abs_diff(170) <= 3 && to == 299, "seed {seed}: {from} to {to}");
    }
}

#[test]
fn transient_recurring_and_persistent_faults_are_distinguished() {
    let bad = |seed, ranges: &[std::ops::Range<u64>]| {
        let plan = Plan { steps: 400, ..Plan::small(seed) };
        let plan = ranges
            .iter()
            .fold(plan, |plan, range| plan.with_fault_in(range.clone(), 1, FaultKind::Input, 15 * MS));
        first(seed, &report(&Simulation::run(&plan))).persistence
    };
    for seed in 0..10 {
        assert_eq!(bad(seed, std::slice::from_ref(&(0..400))), Some(Persistence::Persistent), "seed {seed}");
        assert_eq!(bad(seed, std::slice::from_ref(&(90..190))), Some(Persistence::Transient), "seed {seed}");
        assert_eq!(bad(seed, &[60..130, 230..300]), Some(Persistence::Recurring), "seed {seed}");
    }
}

#[test]
fn uneven_sequences_are_attributed_to_all_ranks() {
    for seed in 0..20 {
        let plan = Plan { steps: 200, sequence_spread: 0.2, ..Plan::small(seed) };
        let report = report(&Simulation::run(&plan));
        let first = first(seed, &report);
        assert_eq!((&first.culprit, first.cause), (&Some(Culprit::All), Cause::MoreWork), "{first:?}");
        // Jitter of the same size that is independent in forward and backward is not attributed to more work.
        let jitter = Plan { steps: 200, jitter: 0.2, ..Plan::small(seed) };
        let report = self::report(&Simulation::run(&jitter));
        let causes: Vec<Cause> = report.verdicts.iter().map(|verdict| verdict.cause).collect();
        assert!(!causes.contains(&Cause::MoreWork), "seed {seed}: {causes:?}");
    }
}

#[test]
fn the_onset_of_a_slowdown_of_all_ranks_is_dated() {
    for seed in 0..10 {
        let plan = Plan { steps: 300, ..Plan::small(seed) };
        let plan =
            (0..4).fold(plan, |plan, rank| plan.with_fault_in(120..300, rank, FaultKind::Compute, 6 * MS));
        let report = report(&Simulation::run(&plan));
        let all = report.verdicts.iter().find(|verdict| verdict.onset.is_some());
        let all = all.unwrap_or_else(|| panic!("seed {seed}: {:?}", report.verdicts));
        assert_eq!((&all.culprit, all.cause), (&Some(Culprit::All), Cause::Compute), "seed {seed}: {all:?}");
        assert!(all.onset.unwrap().step.abs_diff(120) <= 1, "seed {seed}: {all:?}");
    }
}
