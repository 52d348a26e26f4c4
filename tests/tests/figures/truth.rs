//! Tests of the analysis against the truth of a simulated job. Every assertion prints its seed; `Plan::small(seed)`
//! with the same fields simulates the same job.

use testkit::simulator::{Fault, FaultKind, Plan, Simulation, StepTruth};
use wire::ids::Step;
use wire::live::Part;
use wire::views::{Cause, Culprit, Report, RunState};

fn report(simulation: &Simulation) -> Report {
    simulation.received().report(usize::MAX, simulation.end())
}

fn cause_of(kind: FaultKind) -> Cause {
    match kind {
        FaultKind::Input => Cause::Input,
        FaultKind::Compute => Cause::Compute,
        FaultKind::MoreWork => Cause::MoreWork,
        FaultKind::Host => Cause::Host,
        FaultKind::Network => Cause::Network,
    }
}

/// Returns the size of the planted fault. Backward hides most of the delay of a slow network, so it is larger.
fn planted(kind: FaultKind) -> i64 {
    if kind == FaultKind::Network { 40_000_000 } else { 10_000_000 }
}

#[test]
fn planted_faults_are_found_with_rank_cause_and_cost() {
    for seed in 0..20_u64 {
        for (index, kind) in FaultKind::ALL.into_iter().enumerate() {
            let rank = (seed as usize + index) % 4;
            let plan = Plan { late: 80_000_000, ..Plan::small(seed).with_fault(rank, kind, planted(kind)) };
            let simulation = Simulation::run(&plan);
            let report = report(&simulation);
            let first = report.verdicts.first().unwrap_or_else(|| panic!("seed {seed} {kind:?}: no verdict"));
            assert_eq!(first.culprit, Some(Culprit::Rank(rank as u32)), "seed {seed} {kind:?}: {first:?}");
            assert_eq!(first.cause, cause_of(kind), "seed {seed} {kind:?}: {first:?}");
            let (found, truth) =
                (first.lost_nanos() as f64 / report.steps as f64, simulation.cost_nanos_per_step);
            assert!((found - truth).abs() < 0.1 * truth, "seed {seed} {kind:?}: found {found}, true {truth}");
        }
    }
}

#[test]
fn healthy_jobs_have_no_verdict_on_a_rank() {
    for seed in 0..100 {
        let report =
            report(&Simulation::run(&Plan { jitter: 0.05, sequence_spread: 0.1, ..Plan::small(seed) }));
        let against_rank =
            report.verdicts.iter().find(|verdict| matches!(verdict.culprit, Some(Culprit::Rank(_))));
        assert!(against_rank.is_none(), "seed {seed}: {against_rank:?}");
    }
}

#[test]
fn scatter_of_two_healthy_ranks_causes_no_verdict() {
    for (jitter, steps) in [(0.12, 200), (0.2, 200), (0.3, 400), (0.2, 1_000)] {
        for seed in 0..60 {
            let report = report(&Simulation::run(&Plan { ranks: 2, jitter, steps, ..Plan::small(seed) }));
            let against_rank =
                report.verdicts.iter().find(|verdict| matches!(verdict.culprit, Some(Culprit::Rank(_))));
            assert!(against_rank.is_none(), "seed {seed}, {jitter}, {steps} steps: {against_rank:?}");
        }
    }
}

#[test]
fn the_cost_of_a_fault_counts_only_the_steps_that_have_it() {
    for seed in 0..10 {
        let fault = Fault { rank: 1, kind: FaultKind::Compute, nanos: 20_000_000, from: 50, to: 130 };
        let simulation = Simulation::run(&Plan { steps: 200, faults: vec![fault], ..Plan::small(seed) });
        let report = report(&simulation);
        let first = report.verdicts.first().unwrap_or_else(|| panic!("seed {seed}: no verdict"));
        assert_eq!(first.culprit, Some(Culprit::Rank(1)), "seed {seed}: {first:?}");
        let (found, truth) =
            (first.lost_nanos() as f64 / report.steps as f64, simulation.cost_nanos_per_step);
        assert!((found - truth).abs() < 0.2 * truth, "seed {seed}: found {found}, true {truth}");
    }
}

/// Returns the true ledger of one rank: the nanoseconds of every `Part`.
fn true_parts(step: &StepTruth, rank: usize) -> [i64; Part::COUNT] {
    let own = &step.ranks[rank];
    let mut parts = [0; Part::COUNT];
    parts[Part::Input as usize] = own.input_end - own.begin;
    parts[Part::Forward as usize] = own.forward_end - own.forward_begin;
    parts[Part::Backward as usize] = own.backward_end - own.forward_end;
    parts[Part::Optimizer as usize] = own.end - own.reduced;
    for (bucket, &(_, start, end)) in own.buckets.iter().enumerate() {
        let wait_end = start + step.wait(rank, bucket);
        let in_the_open = |from: i64, to: i64| (to - from.max(own.backward_end)).max(0);
        parts[Part::ExposedWait as usize] += in_the_open(start, wait_end);
        parts[Part::ExposedTransfer as usize] += in_the_open(wait_end, end);
    }
    parts[Part::Other as usize] = own.end - own.begin - parts.iter().sum::<i64>();
    parts
}

#[test]
fn the_ledger_matches_the_truth() {
    for seed in 0..10 {
        let simulation = Simulation::run(&Plan { steps: 60, ..Plan::small(seed) });
        let steps = simulation.received().steps().newest(usize::MAX);
        assert_eq!(steps.len(), 60, "seed {seed}");
        for (analyzed, truth) in steps.iter().zip(&simulation.steps) {
            for (rank, found) in analyzed.present() {
                // A clock drift of 50 ppm changes 40 ms by 2 us. Alignment between hosts adds its error bound.
                let tolerance = 5_000 + 400_000 * i64::from(!found.clock_free);
                for (part, (found, truth)) in
                    Part::ALL.iter().zip(found.parts.iter().zip(true_parts(truth, rank)))
                {
                    let waits = matches!(part, Part::ExposedWait | Part::ExposedTransfer);
                    let allowed = if waits { tolerance.max(200_000) } else { 5_000 };
                    let error = (*found as i64 - truth).abs();
                    assert!(
                        error <= allowed,
                        "seed {seed} step {} rank {rank} {part:?}: {found}, true {truth}",
                        analyzed.step
                    );
                }
            }
        }
    }
}

#[test]
fn aligned_waits_are_within_their_bounds() {
    for seed in 0..20 {
        let simulation = Simulation::run(&Plan { steps: 80, jitter: 0.1, ..Plan::small(seed) });
        let run = simulation.received();
        for number in [0_usize, 20, 79] {
            let waterfall = run.waterfall(Some(Step(number as u64))).expect("the step is in memory");
            for at in 0..waterfall.bucket_row.len() {
                let row = waterfall.bucket_row[at] as usize;
                let truth = simulation.steps[number].wait(row, waterfall.bucket[at] as usize) as f64;
                let bound =
                    2.0 * waterfall.clock_bound.iter().fold(0.0, |most, &bound| bound.max(most)) + 3_000.0;
                let error = (waterfall.bucket_wait[at] - truth).abs();
                assert!(error <= bound, "seed {seed} step {number}: off by {error} ns, bound {bound}");
            }
        }
    }
}

#[test]
fn lost_and_late_batches_leave_visible_gaps_and_correct_verdicts() {
    for seed in 0..10 {
        let plan = Plan {
            steps: 400,
            lose_one_in: 40,
            late: 3_000_000_000,
            ..Plan::small(seed).with_fault(2, FaultKind::Input, 15_000_000)
        };
        let simulation = Simulation::run(&plan);
        let run = simulation.received();
        let steps = run.steps().newest(usize::MAX);
        let incomplete = steps.iter().filter(|step| !step.complete).count();
        assert!(incomplete > 0, "seed {seed}: batches were lost, but all steps are complete");
        assert!(
            steps.iter().filter(|step| !step.complete).all(|step| step.ranks.iter().any(Option::is_none))
        );
        let report = run.report(usize::MAX, simulation.end());
        assert_eq!(report.state, RunState::Completed, "seed {seed}");
        let first = report.verdicts.first().unwrap_or_else(|| panic!("seed {seed}: no verdict"));
        assert_eq!(
            (first.culprit.as_ref(), first.cause),
            (Some(&Culprit::Rank(2)), Cause::Input),
            "seed {seed}: {first:?}"
        );
    }
}

#[test]
fn a_run_can_have_thousands_of_ranks() {
    for (ranks, steps) in [(1_024, 60), (4_096, 52)] {
        let plan = Plan {
            ranks,
            steps,
            ranks_per_host: 8,
            buckets: 2,
            ..Plan::small(5).with_fault(ranks - 7, FaultKind::Compute, 12_000_000)
        };
        let plan = Plan { steps, ..plan };
        let simulation = Simulation::run(&plan);
        let report = report(&simulation);
        assert_eq!(report.ranks as usize, ranks);
        let first = report.verdicts.first().unwrap_or_else(|| panic!("{ranks} ranks: no verdict"));
        assert_eq!(first.culprit, Some(Culprit::Rank(ranks as u32 - 7)), "{first:?}");
        let (found, truth) =
            (first.lost_nanos() as f64 / report.steps as f64, simulation.cost_nanos_per_step);
        assert!((found - truth).abs() < 0.2 * truth, "{ranks} ranks: found {found}, true {truth}");
    }
}

#[test]
fn equal_seeds_simulate_equal_jobs() {
    let (a, b) = (Simulation::run(&Plan::small(3)), Simulation::run(&Plan::small(3)));
    assert_eq!(a.batches, b.batches);
    assert_ne!(a.batches, Simulation::run(&Plan::small(4)).batches);
}
