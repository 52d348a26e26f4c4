//! Steps of jobs in which one optimizer updates: two that are alike show them, and those before are placed as well.

use super::*;

/// The steps of a finder and all places so far: of the collectives whose places are known at once or later.
struct Run {
    job: Job,
    finder: StepFinder,
    places: Vec<Placing>,
}

impl Run {
    fn new(has_one_optimizer: bool) -> Self {
        let mut finder = StepFinder::default();
        finder.is_of_all_ranks();
        Self { job: Job { has_one_optimizer, ..Job::new() }, finder, places: Vec::new() }
    }

    /// Runs the collectives after `updates` updates.
    fn step(&mut self, updates: u64, shape: &Shape) {
        for (at, token) in shape.iter().enumerate() {
            self.job.begins = Begin::new(updates as u32, self.job.has_one_optimizer).filter(|_| at == 0);
            let place = self.finder.place(&self.job.next(*token));
            let past = self.finder.take_past();
            let known = self.places.len() - past.len();
            self.places.truncate(known);
            self.places.extend(past);
            self.places.push(place);
        }
    }

    fn known(&self) -> Vec<(u64, u32, bool)> {
        let known = self.places.iter().copied().filter_map(placed);
        known.map(|place| (place.step.0, place.bucket.0, place.is_last)).collect()
    }
}

/// The steps of a DDP module: parameters are compared and sent first, the first backward pass has one bucket, and the next
/// forward pass makes the others.
fn ddp_steps(run: &mut Run, steps: u64) {
    let made = [(Function::Broadcast, 16, 5), (Function::Broadcast, 4, 1), DDP[0], DDP[1], DDP[2]];
    run.step(
        0,
        &[(Function::AllGather, 8, 1), (Function::Broadcast, 550, 1), (Function::AllReduce, 550, 80)],
    );
    run.step(1, &made);
    (2..steps).for_each(|step| run.step(step, &DDP));
}

#[test]
fn a_ddp_job_has_all_its_steps_from_the_first_update_on() {
    let mut run = Run::new(true);
    ddp_steps(&mut run, 5);
    let step_1 = (0..5).map(|at| (1, at, false));
    let whole = |step: u64| (0..3).map(move |at| (step, at, at == 2));
    let expected: Vec<(u64, u32, bool)> = step_1.chain(whole(2)).chain(whole(3)).chain(whole(4)).collect();
    assert_eq!(run.known(), expected);
}

#[test]
fn accumulation_of_gradients_and_skipped_updates_change_no_number() {
    // Four backward passes for each update, and one update that is skipped, so that eight come before the next.
    let passes = |count: usize| DDP.repeat(count);
    let mut run = Run::new(true);
    for (updates, count) in [(0, 4), (1, 4), (2, 8), (3, 4), (4, 4), (5, 4)] {
        run.step(updates, &passes(count));
    }
    let steps: Vec<u64> = run.known().iter().map(|(step, ..)| *step).collect();
    let expected: Vec<u64> = [(1, 12), (2, 24), (3, 12), (4, 12), (5, 12)]
        .iter()
        .flat_map(|&(step, count)| vec![step; count])
        .collect();
    assert_eq!(steps, expected);
    let ends = run.known().into_iter().filter(|(.., is_last)| *is_last).map(|(step, at, _)| (step, at));
    // The step with a skipped update ends with the collective that usually is the last.
    assert_eq!(ends.collect::<Vec<_>>(), [(1, 11), (2, 11), (3, 11), (4, 11), (5, 11)]);
}

#[test]
fn the_steps_of_several_optimizers_and_of_other_communicators_must_repeat_for_longer() {
    let is_known = |run: &mut Run| {
        ddp_steps(run, 10);
        run.finder.step_nanos().is_some()
    };
    assert!(is_known(&mut Run::new(true)));
    assert!(!is_known(&mut Run::new(false)), "the updates may be those of two optimizers");
    let mut other = Run::new(true);
    other.finder = StepFinder::default();
    assert!(!is_known(&mut other), "ranks may be in different communicators");
    // Two optimizers that alternate make one step. The second one begins after the decision would have been made.
    let mut gan = Run::new(true);
    for updates in 0..80 {
        gan.job.has_one_optimizer = updates < 2;
        gan.step(updates, if updates % 2 == 0 { &DDP[..1] } else { &DDP[1..] });
    }
    let known = gan.known();
    assert!(known.len() > 40 && known.iter().all(|(_, at, is_last)| *is_last == (*at == 2)), "{known:?}");
}

#[test]
fn steps_that_repeat_for_long_enough_place_those_before_as_well() {
    // Two optimizers update after one backward pass: each step is two updates, and begins with the second.
    let mut run = Run::new(false);
    (0..40).for_each(|step| run.step(2 * step, &DDP));
    let expected: Vec<(u64, u32, bool)> =
        (1..40).flat_map(|step| (0..3).map(move |at| (2 * step, at, at == 2))).collect();
    assert_eq!(run.known(), expected);
}
