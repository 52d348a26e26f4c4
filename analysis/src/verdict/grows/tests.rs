//! Growth on all ranks and on some, and jobs that do not grow. The laws of verdicts plant growth too.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use wire::views::Verdict;

use super::*;
use crate::verdict::tests::{MS, ON_CPUS, ON_GPUS, found, run};

const STEPS: u64 = 300;

/// Steps in which `rank`, or all ranks, take `nanos` longer in a part of the step.
fn grown(rank: Option<usize>, part: Part, nanos: impl Fn(u64) -> u64) -> Vec<StepAnalysis> {
    run(STEPS, |step, other| rank.is_none_or(|rank| rank == other).then(|| (nanos(step), part)))
}

fn first(steps: &[StepAnalysis], setting: &Setting<'_>) -> Verdict {
    found(steps, setting).verdicts.into_iter().next().expect("a verdict")
}

#[test]
fn growth_on_all_ranks_is_said_with_its_rate_and_its_part() {
    let steps = grown(None, Part::Other, |step| step * MS / 10);
    let found = found(&steps, &ON_CPUS).verdicts;
    let [verdict] = &found[..] else { panic!("one verdict: {found:#?}") };
    assert_eq!((verdict.culprit.clone(), verdict.cause), (Some(Culprit::All), Cause::Host));
    let said =
        "All ranks become slower and slower: the time outside every phase grew from 1.10 ms to 29.8 ms";
    assert!(verdict.sentence.starts_with(said), "{}", verdict.sentence);
    assert!(
        verdict.sentence.contains("over steps 0 to 299, by 100 ms per 1,000 steps"),
        "{}",
        verdict.sentence
    );
    assert!(verdict.advice.contains("a list or dictionary"), "{}", verdict.advice);
}

#[test]
fn growth_on_one_rank_is_said_of_it() {
    let verdict = first(&grown(Some(2), Part::Backward, |step| step * MS / 10), &ON_GPUS);
    assert_eq!((verdict.culprit.clone(), verdict.cause), (Some(Culprit::Rank(2)), Cause::Compute));
    let said = "Rank 2 becomes slower and slower: the time in the backward pass grew from 13.1 ms to 41.8 ms";
    assert!(verdict.sentence.starts_with(said), "{}", verdict.sentence);
    assert_eq!((verdict.steps, verdict.onset), ((0, STEPS - 1), None));
}

#[test]
fn a_change_of_level_is_no_growth() {
    for rank in [None, Some(1)] {
        let steps = grown(rank, Part::Other, |step| if step > 120 { 20 * MS } else { 0 });
        let verdict = first(&steps, &ON_GPUS);
        assert_eq!(verdict.growth, None, "{verdict:#?}");
    }
}

#[test]
fn on_processors_growth_counts_from_what_they_vary_by() {
    // 2.7 ms of 21 ms.
    let steps = grown(None, Part::Forward, |step| step * 9 * MS / 1_000);
    assert!(first(&steps, &ON_GPUS).growth.is_some());
    assert!(found(&steps, &ON_CPUS).verdicts.iter().all(|verdict| verdict.growth.is_none()));
}

/// Draws healthy jobs on cores that ranks share: processors are slower for a while, together and each alone.
#[test]
fn healthy_jobs_on_shared_cores_do_not_grow() {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let jobs = 400;
    let grew = (0..jobs).filter(|_| {
        let (mut shared, mut own) = (0.0_f64, [0.0_f64; 4]);
        let keeps: f64 = random.random_range(0.5..0.999);
        let fresh = (1.0 - keeps * keeps).sqrt();
        let work: Vec<[u64; 4]> = (0..STEPS)
            .map(|_| {
                let mut normal = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
                shared = keeps * shared + fresh * normal();
                own.iter_mut().for_each(|own| *own = keeps * *own + fresh * normal());
                // 2 of 20 ms is the deviation of the speed that all share.
                own.map(|own| ((4.0 + 2.0 * shared + own).max(0.0) * MS as f64) as u64)
            })
            .collect();
        let steps = run(STEPS, |step, rank| Some((work[step as usize][rank], Part::Forward)));
        found(&steps, &ON_CPUS).verdicts.iter().any(|verdict| verdict.growth.is_some())
    });
    let grew = grew.count();
    assert!(grew <= jobs / 100, "{grew} of {jobs}");
}

#[test]
fn slow_growth_of_a_long_run_is_seen_in_its_course() {
    // 40 ms over 4,000 steps. The report covers the last 300.
    let course_from = |first: u64, interval: u64| {
        let grown = |step: u64| Some((step * MS / 100, Part::Other));
        let mut steps = run(STEPS, |at, _| grown(first + at * interval));
        for (at, step) in (0..).zip(&mut steps) {
            step.step = wire::ids::Step(first + at * interval);
        }
        steps
    };
    let (newest, course) = (course_from(3_700, 1), course_from(0, 13));
    let course: Vec<&StepAnalysis> = course.iter().collect();
    assert!(found(&newest, &ON_CPUS).verdicts.iter().all(|verdict| verdict.growth.is_none()));
    let verdict = first(&newest, &Setting { course: &course, ..ON_CPUS });
    let said =
        "All ranks become slower and slower: the time outside every phase grew from 1.26 ms to 38.6 ms";
    assert!(verdict.sentence.starts_with(said), "{}", verdict.sentence);
    assert!(
        verdict.sentence.contains("over steps 0 to 3,887, by 10.0 ms per 1,000 steps, which costs 37."),
        "{}",
        verdict.sentence
    );
}

#[test]
fn a_rank_that_is_late_all_along_while_all_ranks_grow_does_not_grow_beyond_them() {
    let later = |rank| if rank == 1 { 4 * MS } else { 0 };
    let steps = run(STEPS, |step, rank| Some((step * MS / 10 + later(rank), Part::Other)));
    let found = found(&steps, &ON_CPUS).verdicts;
    let rank_1 = found.iter().find(|verdict| verdict.culprit == Some(Culprit::Rank(1))).expect("it is late");
    assert_eq!(rank_1.growth, None, "{rank_1:#?}");
    let of_all = found.iter().find(|verdict| verdict.culprit == Some(Culprit::All)).expect("all grow");
    assert!(of_all.growth.is_some(), "{of_all:#?}");
}
