//! Verdicts on hand-made steps. The simulator tests verdicts on generated jobs with known faults.

mod laws;

use wire::live::Part;
use wire::views::Cause;

use super::fixture::replay;
use super::*;
use crate::step::RankAnalysis;
use crate::{fixtures, wording};

pub(crate) const MS: u64 = 1_000_000;

/// A step of four ranks whose local work is 20 ms plus `extra`. Ranks that are early have an exposed wait.
fn step(number: u64, extra: [(u64, Part); 4]) -> StepAnalysis {
    let longest = extra.iter().map(|(nanos, _)| *nanos).max().unwrap();
    let rank = |(nanos, part): (u64, Part)| {
        let mut parts = [MS, 0, 5 * MS, 12 * MS, longest - nanos, MS, 2 * MS, 0, 0, 0];
        parts[part as usize] += nanos;
        Some(Box::new(RankAnalysis {
            // All pauses are garbage collections.
            pauses: [0, 0, parts[Part::Pause as usize], 0],
            samples: 1,
            compute_nanos: 19 * MS,
            comm_nanos: 5 * MS,
            hidden_nanos: 2 * MS,
            processor_nanos: [0, 0, parts[2], parts[3], parts[6]],
            tail_nanos: Some(MS),
            lateness_nanos: Some(0.0),
            ..fixtures::rank(parts)
        }))
    };
    StepAnalysis { ranks: extra.map(rank).to_vec(), local_nanos: 21 * MS + longest, ..fixtures::step(number) }
}

/// The jitter of a healthy machine: every rank is last now and then.
fn jitter(number: u64, rank: u64) -> u64 {
    (number * 7 + rank * 13 + number * rank * 5) % 11 * MS / 10
}

/// Returns steps of four ranks in which `fault` lengthens one part of a rank by so many nanoseconds.
pub(crate) fn run(steps: u64, fault: impl Fn(u64, usize) -> Option<(u64, Part)>) -> Vec<StepAnalysis> {
    let lengthened = |number, rank: usize| {
        let (nanos, part) = fault(number, rank).unwrap_or((0, Part::Forward));
        (jitter(number, rank as u64) + nanos, part)
    };
    (0..steps)
        .map(|n| step(n, [lengthened(n, 0), lengthened(n, 1), lengthened(n, 2), lengthened(n, 3)]))
        .collect()
}

/// Returns the steps of a healthy run.
pub(crate) fn healthy(steps: u64) -> Vec<StepAnalysis> {
    run(steps, |_, _| None)
}

pub(super) const ON_GPUS: Setting<'_> = Setting {
    computed_on: ComputedOn::Gpu,
    notable_share: NOTABLE_SHARE,
    hidden_steps: &[],
    course: &[],
    is_recorded: false,
    is_on_bare_metal: false,
    has_only_collectives: false,
};
pub(super) const ON_CPUS: Setting<'_> = Setting { computed_on: ComputedOn::Cpu, ..ON_GPUS };

/// Verdicts and notes in words.
pub(super) struct Verdicts {
    pub(super) verdicts: Vec<Verdict>,
    notes: Vec<Verdict>,
}

pub(super) fn found(steps: &[StepAnalysis], setting: &Setting<'_>) -> Verdicts {
    let Findings { verdicts, notes } = super::verdicts(&steps.iter().collect::<Vec<_>>(), setting);
    let written = |findings: Vec<Finding>| findings.into_iter().map(wording::verdict).collect();
    Verdicts { verdicts: written(verdicts), notes: written(notes) }
}

fn judge(steps: &[StepAnalysis]) -> Vec<Verdict> {
    found(steps, &ON_GPUS).verdicts
}

#[test]
fn a_healthy_run_has_no_verdict() {
    assert_eq!(judge(&run(400, |_, _| None)), []);
}

#[test]
fn each_fault_is_attributed_to_its_rank_and_cause_with_its_cost() {
    for rank in 0..4 {
        for (part, cause) in [
            (Part::Input, Cause::Input),
            (Part::H2d, Cause::H2d),
            (Part::Forward, Cause::Compute),
            (Part::Backward, Cause::Compute),
            (Part::Idle, Cause::Host),
            (Part::Other, Cause::Host),
        ] {
            let verdicts = judge(&run(200, |_, r| (r == rank).then_some((10 * MS, part))));
            assert_eq!(verdicts.len(), 1, "{verdicts:?}");
            let verdict = &verdicts[0];
            assert_eq!((&verdict.culprit, verdict.cause), (&Some(Culprit::Rank(rank as u32)), cause));
            let error = verdict.cost_nanos_per_step.abs_diff(10 * MS);
            assert!(error <= MS, "planted 10 ms, found {} ns", verdict.cost_nanos_per_step);
            assert_eq!(verdict.confidence, Confidence::High);
            let is_reason_doubted =
                verdict.counter_evidence.iter().any(|line| line.contains("does not say why"));
            assert_eq!(is_reason_doubted, part == Part::Idle, "{verdict:?}");
        }
    }
}

#[test]
fn what_ranks_lose_in_turns_is_in_the_cost_of_its_part() {
    // In each step two ranks wait 10 ms for their input, and the usual rank, the second fastest, does not.
    let steps = run(200, |step, rank| ((step as usize + rank) % 4 < 2).then_some((10 * MS, Part::Input)));
    let verdicts = judge(&steps);
    let is_input = |verdict: &&Verdict| verdict.cause == Cause::Input;
    let [verdict] = &verdicts.iter().filter(is_input).collect::<Vec<_>>()[..] else { panic!("{verdicts:?}") };
    assert_eq!(verdict.culprit, Some(Culprit::All));
    // Besides the 5 ms, every rank needs 1 ms in each step.
    assert!(verdict.cost_nanos_per_step.abs_diff(6 * MS) <= MS / 2, "{verdict:?}");
}

#[test]
fn a_rank_that_collects_garbage_is_named_with_the_kind_of_pause() {
    let steps = run(200, |_, rank| (rank == 2).then_some((6 * MS, Part::Pause)));
    let [verdict] = &judge(&steps)[..] else { panic!("one verdict") };
    assert_eq!((verdict.culprit.clone(), verdict.cause), (Some(Culprit::Rank(2)), Cause::GarbageCollection));
    assert!(verdict.cost_nanos_per_step.abs_diff(6 * MS) <= MS, "{verdict:?}");
    let says = "Rank 2 collects garbage in most steps while the other ranks wait, which costs";
    assert!(verdict.sentence.starts_with(says), "{verdict:?}");
}

#[test]
fn compute_excess_without_processor_time_is_attributed_to_the_host() {
    let mut steps = run(200, |_, rank| (rank == 1).then_some((10 * MS, Part::Forward)));
    for step in &mut steps {
        let slow = step.ranks[1].as_mut().unwrap();
        slow.processor_nanos[2] -= 10 * MS;
    }
    assert_eq!(judge(&steps)[0].cause, Cause::Host);
}

/// The speed of a rank on a shared core depends on the other ranks on that core.
#[test]
fn shared_cores_lower_confidence_and_are_counter_evidence() {
    let mut steps = run(200, |_, rank| (rank == 1).then_some((10 * MS, Part::Forward)));
    let is_uncertain =
        |verdict: &Verdict| verdict.counter_evidence.iter().any(|line| line.contains("ranks share cores"));
    let own = &judge(&steps)[0];
    assert_eq!((own.confidence, is_uncertain(own)), (Confidence::High, false));
    for rank in steps.iter_mut().flat_map(|step| step.ranks.iter_mut().flatten()) {
        rank.processor_nanos = rank.processor_nanos.map(|nanos| nanos / 2);
    }
    let shared = &judge(&steps)[0];
    assert_eq!((&shared.culprit, shared.confidence), (&Some(Culprit::Rank(1)), Confidence::Medium));
    assert!(is_uncertain(shared), "{shared:?}");
}

#[test]
fn a_transient_fault_is_dated_costs_only_its_own_steps_and_is_resolved() {
    let verdicts =
        judge(&run(400, |n, rank| (rank == 3 && (100..200).contains(&n)).then_some((20 * MS, Part::Input))));
    let verdict = &verdicts[0];
    assert_eq!(verdict.culprit, Some(Culprit::Rank(3)));
    assert_eq!(
        (verdict.state, verdict.steps, verdict.affected_steps),
        (VerdictState::Resolved, (100, 199), 100)
    );
    assert!(verdict.cost_nanos_per_step.abs_diff(20 * MS) <= MS, "{verdict:?}");
    assert_eq!(verdict.device_hours_per_day, None, "it no longer costs anything");
    assert!(verdict.sentence.starts_with("Rank 3 waited for its input from step 100 to 199"), "{verdict:?}");
}

/// The input of rank 1 is slow, then its compute. The first fault stays resolved when the second one begins.
#[test]
fn two_faults_of_one_rank_are_two_verdicts() {
    let steps = run(400, |n, rank| match (rank, n) {
        (1, 80..140) => Some((20 * MS, Part::Input)),
        (1, 220..280) => Some((15 * MS, Part::Forward)),
        _ => None,
    });
    let found: Vec<_> =
        judge(&steps).iter().map(|verdict| (verdict.cause, verdict.state, verdict.steps)).collect();
    let resolved = VerdictState::Resolved;
    assert_eq!(found, [(Cause::Input, resolved, (80, 139)), (Cause::Compute, resolved, (220, 279))]);
    let again = run(400, |n, rank| {
        (rank == 1 && n / 40 % 2 == 1).then_some((20 * MS, if n < 200 { Part::Input } else { Part::Forward }))
    });
    assert_eq!(judge(&again).len(), 2, "both faults are recurring");
}

#[test]
fn an_active_fault_has_a_beginning_and_no_end() {
    for begin in [0, 60, 80, 380] {
        let verdicts =
            judge(&run(400, |n, rank| (rank == 1 && n >= begin).then_some((40 * MS, Part::Input))));
        assert_eq!(
            (verdicts[0].state, verdicts[0].steps),
            (VerdictState::Active, (begin, 399)),
            "{verdicts:?}"
        );
        let begin_words = if begin == 0 {
            "Rank 1 waits".to_owned()
        } else {
            format!("From step {begin} on, rank 1 waits")
        };
        assert!(verdicts[0].sentence.starts_with(&begin_words), "{verdicts:?}");
    }
}

#[test]
fn what_cost_most_time_comes_first_even_if_it_is_over() {
    let steps = run(400, |n, rank| match (rank, n) {
        (0, 50..150) => Some((90 * MS, Part::Input)),
        (2, 300..) => Some((20 * MS, Part::Forward)),
        _ => None,
    });
    let found: Vec<_> =
        judge(&steps).iter().map(|verdict| (verdict.culprit.clone(), verdict.state)).collect();
    let expected =
        [(Some(Culprit::Rank(0)), VerdictState::Resolved), (Some(Culprit::Rank(2)), VerdictState::Active)];
    assert_eq!(found, expected);
}

/// A rank that costs about half of the step is named within 20 steps, however long it was healthy before.
#[test]
fn a_rank_that_costs_half_of_the_step_is_named_at_once() {
    for healthy in [0, 30, 480] {
        let steps =
            run(healthy + 20, |n, rank| (rank == 1 && n >= healthy).then_some((40 * MS, Part::Input)));
        let verdicts = judge(&steps);
        assert_eq!(verdicts.len(), 1, "after {healthy} healthy steps: {verdicts:?}");
        assert_eq!(verdicts[0].culprit, Some(Culprit::Rank(1)));
    }
}

/// A rank computes 3 ms longer in a quarter of the steps. On CPUs the cause is the processor, on GPUs compute.
#[test]
fn a_temporarily_slow_core_is_a_note_with_the_cause_processor() {
    let slow = |n: u64, rank| rank == 1 && (100..200).contains(&n);
    let steps = run(400, |n, rank| slow(n, rank).then_some((3 * MS, Part::Forward)));
    let [note] = &found(&steps, &ON_CPUS).notes[..] else { panic!("{:?}", found(&steps, &ON_CPUS).notes) };
    assert_eq!((note.cause, note.confidence), (Cause::Processor, Confidence::Medium));
    assert_eq!(found(&steps, &ON_CPUS).verdicts, []);
    let on_bare_metal = Setting { is_on_bare_metal: true, ..ON_CPUS };
    let verdicts = found(&steps, &Setting { notable_share: 0.01, ..on_bare_metal }).verdicts;
    assert_eq!(verdicts[0].cause, Cause::Processor, "no other machine shares its processors");
    assert_eq!(found(&steps, &Setting { notable_share: 0.01, ..ON_CPUS }).verdicts, []);
    assert_eq!(found(&steps, &ON_GPUS).notes[0].cause, Cause::Compute, "devices are not shared");
    let always = run(400, |_, rank| (rank == 1).then_some((3 * MS, Part::Forward)));
    assert_eq!(found(&always, &ON_CPUS).verdicts[0].cause, Cause::Compute, "a lasting fault is the rank's");
}

#[test]
fn an_effect_below_the_notable_share_is_a_note() {
    let steps = run(2_000, |_, rank| (rank == 1).then_some((2 * MS, Part::Input)));
    let share = |notable_share| Setting { notable_share, ..ON_GPUS };
    let verdict = &found(&steps, &share(0.0)).verdicts[0];
    assert!((0.02..0.1).contains(&verdict.cost_share), "{verdict:?}");
    assert_eq!(found(&steps, &share(verdict.cost_share + 0.01)).verdicts, []);
    assert_eq!(found(&steps, &share(verdict.cost_share + 0.01)).notes.len(), 1);
    let now_and_then = |n| (100..115).contains(&n) || (250..265).contains(&n);
    let steps = run(400, |n, rank| (rank == 1 && now_and_then(n)).then_some((10 * MS, Part::Forward)));
    let Verdicts { verdicts, notes } = found(&steps, &ON_GPUS);
    assert_eq!((verdicts, notes.len()), (vec![], 1), "a third of the step, in one of 13 steps");
    assert_eq!(notes[0].state, VerdictState::Recurring);
}

#[test]
fn a_hidden_step_is_never_the_example() {
    let steps = run(200, |_, rank| (rank == 1).then_some((10 * MS, Part::Input)));
    let example = |hidden_steps: &[u64]| {
        let found = found(&steps, &Setting { hidden_steps, ..ON_GPUS });
        (found.verdicts[0].example_step, Verdict { example_step: None, ..found.verdicts[0].clone() })
    };
    let (usual, verdict) = example(&[]);
    let usual = usual.unwrap();
    let (other, same) = example(&[usual]);
    assert!(other.is_some_and(|other| other != usual), "{other:?} in place of {usual}");
    assert_eq!(verdict, same, "nothing else depends on the hidden steps");
    assert_eq!(example(&(0..200).collect::<Vec<_>>()).0, None, "no step is left");
    let mut steps = run(400, |_, _| None);
    for step in &mut steps[200..] {
        step.local_nanos += 5 * MS;
        step.ranks.iter_mut().flatten().for_each(|rank| rank.compute_nanos += 5 * MS);
    }
    let example_step =
        |hidden_steps: &[u64]| found(&steps, &Setting { hidden_steps, ..ON_GPUS }).verdicts[0].example_step;
    assert_eq!((example_step(&[]), example_step(&[398, 399])), (Some(399), Some(397)));
    assert_eq!(example_step(&(200..400).collect::<Vec<_>>()), None, "earlier steps do not show the effect");
}

/// The sentence, the daily cost and the total cost of a verdict derive from one figure.
#[test]
fn sentence_and_totals_repeat_the_cost_per_step() {
    let steps = run(200, |_, rank| (rank == 1).then_some((10 * MS, Part::Input)));
    let verdict = &judge(&steps)[0];
    assert_eq!(verdict.lost_nanos(), verdict.cost_nanos_per_step * 200);
    assert_eq!(verdict.device_hours_per_day, Some(verdict.cost_share * 4.0 * 24.0));
    assert!(verdict.sentence.contains(&units::nanos(verdict.cost_nanos_per_step as f64)), "{verdict:?}");
    assert!(
        verdict.sentence.contains(&format!("{} of step time", units::percent(verdict.cost_share))),
        "{verdict:?}"
    );
}

/// A core that is slower than its neighbors for a second is not a straggler; a rank that is always slower is.
#[test]
fn a_small_cost_needs_more_steps() {
    let slow_for = |steps| judge(&run(steps, |_, rank| (rank == 1).then_some((2 * MS, Part::Forward))));
    assert_eq!(slow_for(60), []);
    assert_eq!(slow_for(400).len(), 1);
}

/// Forward and backward rise and fall together in both series, but only uneven work does so from step to step.
#[test]
fn a_temporarily_slow_device_is_not_uneven_work() {
    let passes = |extra: &dyn Fn(u64) -> f64| -> Vec<excess::Passes> {
        let passes = |n: u64| excess::Passes {
            forward: 10.0 + extra(n),
            backward: 20.0 + 2.0 * extra(n) + jitter(n, 1) as f64 / 2e6,
        };
        (0..140).map(passes).collect()
    };
    let drawn_again = passes(&|n| (n * 37 % 11) as f64 / 2.0);
    let slow_for_a_while = passes(&|n| if (40..120).contains(&n) { 5.0 } else { 0.0 });
    assert!(excess::Variation::new(&drawn_again).unwrap().is_of_work());
    let device = excess::Variation::new(&slow_for_a_while).unwrap();
    assert!(device.correlation() > 0.9 && device.coefficient() > 0.1 && !device.is_of_work(), "{device:?}");
}

#[test]
fn too_few_steps_are_insufficient_evidence() {
    assert_eq!(judge(&run(19, |_, rank| (rank == 1).then_some((50 * MS, Part::Input)))), []);
    assert_eq!(insufficient(19), Some(Missing::TooFewSteps { observed: 19, needed: 20 }));
    assert_eq!(insufficient(20), None);
}

#[test]
fn one_slow_rank_of_two_is_not_slower_compute_on_all_ranks() {
    let judged = |slow_ranks: usize| {
        let mut steps = run(400, |_, _| None);
        for step in &mut steps {
            step.ranks.truncate(2);
            if step.step.0 >= 200 {
                step.local_nanos += 10 * MS;
                for rank in step.ranks.iter_mut().flatten().take(slow_ranks) {
                    rank.compute_nanos += 10 * MS;
                }
            }
        }
        judge(&steps).iter().any(|verdict| verdict.sentence.starts_with("All ranks compute"))
    };
    assert_eq!([judged(1), judged(2)], [false, true]);
}

#[test]
fn slower_compute_on_all_ranks_counts_only_if_steps_take_longer() {
    let judged = |longer_steps: u64, on_processor: u64| {
        let mut steps = run(400, |_, _| None);
        for step in &mut steps[200..] {
            step.local_nanos += longer_steps;
            for rank in step.ranks.iter_mut().flatten() {
                rank.compute_nanos += 5 * MS;
                rank.processor_nanos[3] += on_processor;
            }
        }
        judge(&steps)
    };
    let [verdict] = &judged(5 * MS, 5 * MS)[..] else { panic!("one verdict") };
    assert!(
        verdict.sentence.starts_with("All ranks compute 26.3 % longer from step 200 on, "),
        "{verdict:?}"
    );
    assert_eq!((verdict.cost_nanos_per_step.abs_diff(5 * MS) < MS, verdict.affected_steps), (true, 200));
    assert_eq!(verdict.cause, Cause::Compute);
    let [verdict] = &judged(5 * MS, MS)[..] else { panic!("one verdict") };
    assert!(verdict.sentence.contains("200 on because they are kept off their processors, "), "{verdict:?}");
    assert_eq!(verdict.cause, Cause::Host, "hardly any of it is processor time");
    assert_eq!(judged(0, 5 * MS), [], "the compute was hidden, or is only measured better");
}

#[test]
fn steps_of_more_passes_are_not_slower() {
    let judged = |passes| {
        let mut steps = run(400, |_, _| None);
        for step in &mut steps[200..] {
            step.local_nanos += 40 * MS;
            for rank in step.ranks.iter_mut().flatten() {
                (rank.compute_nanos, rank.backward_passes) = (rank.compute_nanos + 40 * MS, passes);
            }
        }
        judge(&steps)
    };
    assert_eq!(judged(1).len(), 1);
    assert_eq!(judged(4), []);
}

#[test]
fn a_rank_that_stalls_again_and_again_is_named_with_the_steps_of_its_stalls() {
    let stalls = |rank: usize| {
        run(400, move |number, at_rank| {
            (number % 20 == 7 && at_rank == rank).then_some((40 * MS, Part::Other))
        })
    };
    let [verdict] = &judge(&stalls(1))[..] else { panic!("one verdict") };
    assert_eq!(
        (verdict.culprit.clone(), verdict.affected_steps, verdict.steps),
        (Some(Culprit::Rank(1)), 20, (7, 387))
    );
    assert_eq!((verdict.state, verdict.cause), (VerdictState::Recurring, Cause::Host));
    assert!((38 * MS..=41 * MS).contains(&verdict.cost_nanos_per_step), "{verdict:#?}");
    let says = "Rank 1 stops every 20 steps while the other ranks wait: 40.0 ms each time, 20 times, 8.4 % of the \
                time.";
    assert_eq!(verdict.sentence, says);
    assert!(verdict.device_hours_per_day.is_some_and(|hours| (7.0..9.0).contains(&hours)), "{verdict:#?}");
    let took_turns = run(400, |number, at_rank| {
        (number % 5 == 2 && number as usize / 5 % 4 == at_rank).then_some((40 * MS, Part::Other))
    });
    assert!(
        judge(&took_turns).iter().all(|verdict| verdict.culprit == Some(Culprit::All)),
        "{:#?}",
        judge(&took_turns)
    );
}

#[test]
fn one_long_stall_is_named_and_a_recorded_pause_with_its_kind() {
    let once =
        |part| run(400, move |number, at_rank| (number == 300 && at_rank == 2).then_some((1_000 * MS, part)));
    let [verdict] = &judge(&once(Part::Other))[..] else { panic!("one verdict") };
    assert_eq!((verdict.culprit.clone(), verdict.affected_steps), (Some(Culprit::Rank(2)), 1));
    assert_eq!(verdict.state, VerdictState::Resolved);
    let says = "Rank 2 stopped in step 300 while the other ranks waited: 999 ms, 10.3 % of the time.";
    assert_eq!(verdict.sentence, says);
    let [paused] = &judge(&once(Part::Pause))[..] else { panic!("one verdict") };
    assert_eq!(paused.cause, Cause::GarbageCollection);
    let short =
        run(400, |number, at_rank| (number == 300 && at_rank == 2).then_some((300 * MS, Part::Other)));
    assert!(judge(&short).is_empty(), "it costs less than 5 % of the time");
}

#[test]
fn devices_that_are_idle_in_a_short_recording_of_any_ranks_are_a_verdict() {
    let steps = run(3, |_, _| Some((30 * MS, Part::Idle)));
    let recorded = Setting { is_recorded: true, ..ON_GPUS };
    let judged = |setting: &Setting<'_>| super::judge(&steps.iter().collect::<Vec<_>>(), setting);
    let (found, _) = judged(&recorded);
    let [idle] = &found.verdicts[..] else { panic!("one verdict: {found:?}") };
    assert_eq!((idle.verdict.culprit.clone(), idle.verdict.cause), (Some(Culprit::All), Cause::Host));
    assert!(idle.verdict.cost_share > 0.5, "{idle:?}");
    assert!(judged(&ON_GPUS).0.verdicts.is_empty(), "a live run will have more steps");
    let (busy, _) = super::judge(&healthy(3).iter().collect::<Vec<_>>(), &recorded);
    assert!(busy.verdicts.is_empty(), "{busy:?}");
}

#[test]
fn a_note_that_code_explains_becomes_a_verdict_and_a_verdict_that_scatter_explains_a_note() {
    let steps = healthy(50);
    let steps: Vec<&StepAnalysis> = steps.iter().collect();
    let late = |is_scatter, reason| {
        let mut finding = super::fixture::finding_on_rank_1(Cause::Processor);
        (finding.is_scatter, finding.reason) = (is_scatter, reason);
        finding.verdict.affected_steps = 50;
        finding
    };
    let counts = |verdicts: Vec<Finding>, notes: Vec<Finding>| {
        let mut found = Findings { verdicts, notes };
        found.settle(&steps, &ON_CPUS);
        (found.verdicts.len(), found.notes.len())
    };
    assert_eq!(counts(vec![late(true, None)], vec![]), (0, 1));
    assert_eq!(counts(vec![], vec![late(true, None)]), (0, 1));
    assert_eq!(counts(vec![], vec![late(false, Some(Reason::OwnCode))]), (1, 0));
}

#[test]
fn where_it_is_not_known_whether_ranks_wait_for_a_part_of_the_collectives_the_rest_is_the_cost() {
    let mut steps = run(100, |_, _| Some((8 * MS, Part::ExposedTransfer)));
    let sentence = |steps: &[StepAnalysis]| judge(steps).into_iter().map(|verdict| verdict.sentence).next();
    let known = sentence(&steps).unwrap();
    assert!(known.contains("does not hide, which costs 9."), "{known}");
    for rank in steps.iter_mut().flat_map(|step| step.ranks.iter_mut().flatten()) {
        (rank.comm_nanos, rank.assumed_exposed_nanos) = (13 * MS, 4 * MS);
    }
    let least = sentence(&steps).unwrap();
    assert!(least.contains("does not hide, which costs at least 5."), "{least}");
    for rank in steps.iter_mut().flat_map(|step| step.ranks.iter_mut().flatten()) {
        rank.assumed_exposed_nanos = 9 * MS;
    }
    assert_eq!(sentence(&steps), None, "all of it is assumed");
}

/// Few steps whose ranks are late in turn, and in whose replay the ranks save this many milliseconds.
fn late_in_turn(saves: [f32; 4]) -> Vec<StepAnalysis> {
    let replay = replay(30e6, 4.5e6, saves.map(|millis| millis * 1e6).to_vec());
    let steps =
        run(24, |number, at_rank| (number as usize % 4 == at_rank).then_some((9 * MS, Part::Forward)));
    steps.into_iter().map(|step| StepAnalysis { replay: Some(replay.clone()), ..step }).collect()
}

#[test]
fn ranks_that_wait_mostly_for_one_do_not_take_turns() {
    let note = |saves| {
        let notes = found(&late_in_turn(saves), &ON_CPUS).notes;
        let [note] = &notes[..] else { panic!("one note: {notes:#?}") };
        note.sentence.clone()
    };
    assert!(note([1.1, 1.2, 1.1, 1.1]).starts_with("Ranks take turns at being last"));
    assert!(
        note([0.0, 0.0, 4.0, 0.5]).starts_with("Ranks wait for each other, mostly for rank 2, which costs ")
    );
}

#[test]
fn of_more_ranks_one_is_named_that_is_last_in_fewer_steps() {
    let is_named = |last_in: usize, ranks: usize| {
        Chosen { last_in, bad: 1_000, last_in_all: last_in, all: 1_000 }.is_beyond_chance(ranks)
    };
    assert!(is_named(610, 2) && !is_named(590, 2));
    assert!(is_named(410, 4) && !is_named(390, 4));
}
