//! Which steps are sampled, and when.

use super::*;

const USUAL: Duration = Duration::from_millis(100);

/// A training thread in virtual time, of which `Turns` decides what is sampled.
struct Job {
    turns: Turns,
    origin: Instant,
    now: Duration,
    /// The processor time of a sampling.
    cost: Duration,
    /// The beginnings and the lengths of the samplings.
    sampled: Vec<(Duration, Duration)>,
}

impl Job {
    fn new(ranks: u32) -> Self {
        let origin = Instant::now();
        let (now, cost) = (Duration::ZERO, Duration::from_millis(5));
        Self { turns: Turns::new(ranks, origin), origin, now, cost, sampled: Vec::new() }
    }

    /// Runs a step of a length. A sampling ends with it.
    fn step(&mut self, length: Duration) {
        let (begun, end) = (self.now, self.now + length);
        let nanos = |time: Duration| MonoNanos(time.as_nanos() as i64);
        while self.now < end {
            match self.turns.next(self.origin + self.now, nanos(self.now), Some(nanos(begun)), Some(USUAL)) {
                Turn::Wait(wait) => self.now += wait.min(end - self.now),
                Turn::Sample { length, .. } => {
                    let begin = self.now;
                    self.now = (begin + length).min(end);
                    self.turns.ended(self.origin + self.now, self.now - begun, self.cost);
                    self.sampled.push((begin - begun, self.now - begin));
                }
            }
        }
    }
}

#[test]
fn a_step_is_long_after_three_times_its_usual_length_within_limits() {
    let millis = Duration::from_millis;
    assert_eq!(long_after(millis(2)), millis(52));
    assert_eq!(long_after(millis(100)), millis(300));
    assert_eq!(long_after(millis(20_000)), millis(25_000));
}

#[test]
fn only_long_steps_are_sampled_and_until_they_end() {
    let mut job = Job::new(2);
    for at in 0..100 {
        job.step(if at == 50 { 5 * USUAL } else { 2 * USUAL });
    }
    assert_eq!(job.sampled, [(3 * USUAL, 2 * USUAL)]);
}

#[test]
fn a_step_that_does_not_end_is_sampled_ever_more_rarely() {
    let mut job = Job::new(2);
    job.step(Duration::from_mins(10));
    let begins: Vec<u64> = job.sampled.iter().map(|(from, _)| from.as_secs()).collect();
    assert_eq!(begins, [0, 7, 15, 32, 64, 129, 257, 514]);
    let lengths: Vec<Duration> = job.sampled.iter().map(|(_, length)| *length).collect();
    assert_eq!(lengths[..2], [FIRST_LENGTH, LATER_LENGTH]);
}

#[test]
fn a_step_that_is_far_longer_than_the_last_one_does_not_wait_for_its_turn() {
    let mut job = Job::new(1_024);
    for length in [5, 4, 30, 5, 20] {
        (0..10).for_each(|_| job.step(USUAL));
        job.step(length * USUAL);
    }
    // The second and the fourth are like the one before, and the last one is no longer than the third.
    assert_eq!(job.sampled, [(3 * USUAL, 2 * USUAL), (10 * USUAL, 20 * USUAL)]);
}

#[test]
fn frequent_long_steps_are_sampled_within_the_budget_and_one_in_k_after_a_while() {
    let run = |ranks, cost| {
        let mut job = Job { cost, ..Job::new(ranks) };
        while job.now < Duration::from_mins(10) {
            (0..5).for_each(|_| job.step(USUAL));
            job.step(5 * USUAL);
        }
        job
    };
    // A step is long every second, and one is sampled every two seconds. After 64 samplings one long step in two is chosen, after
    // 64 more one in four, which takes 64 times four seconds, and then one in eight.
    let cheap = run(2, Duration::from_millis(5));
    assert!((190..=215).contains(&cheap.sampled.len()), "{}", cheap.sampled.len());
    for cost in [50, 500].map(Duration::from_millis) {
        let dear = run(2, cost);
        let spent = cost * dear.sampled.len() as u32;
        assert!(spent <= (dear.now + BUDGET * cost) / BUDGET, "{spent:?}");
        assert!(spent >= dear.now / BUDGET / 4, "{spent:?}: the budget is used");
    }
    let large = run(1_024, Duration::from_millis(5));
    assert!((10..=20).contains(&large.sampled.len()), "{}: at most one in 32 s", large.sampled.len());
}
