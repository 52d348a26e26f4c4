//! Tests of goodput with planted times, and of its sum.

use proptest::prelude::*;
use wire::event::SpanKind;
use wire::live::Part;

use super::*;
use crate::fixtures;

const MS: i64 = 1_000_000;
const S: i64 = 1_000 * MS;

/// Returns the analysis of a step of `millis` in which everything but the pauses is compute.
fn computed(millis: i64, pauses: &[(SpanKind, i64)]) -> RankAnalysis {
    let mut rank = RankAnalysis { step_nanos: (millis * MS) as u64, ..fixtures::rank([0; Part::COUNT]) };
    for &(kind, millis) in pauses {
        let at = SpanKind::PAUSES.into_iter().position(|pause| pause == kind).expect("a pause");
        rank.pauses[at] = (millis * MS) as u64;
        rank.parts[Part::Pause as usize] += (millis * MS) as u64;
    }
    rank.parts[Part::Forward as usize] = rank.step_nanos - rank.parts[Part::Pause as usize];
    rank
}

/// A rank whose process began at `at`, on a clock that is `OFFSET` behind the server's.
struct Process<'a> {
    lifeline: &'a mut Lifeline,
    at: i64,
}

const OFFSET: i64 = 7 * S;

impl<'a> Process<'a> {
    /// Begins attempt `number` at `at`. Its first batch is sent `imports` later.
    fn start(lifeline: &'a mut Lifeline, number: u32, done: Option<u64>, at: i64, imports: i64) -> Self {
        lifeline.begin(number, done.map(Step));
        let mut process = Self { lifeline, at: at + imports };
        process.hear();
        process.lifeline.began(MonoNanos(at));
        process
    }

    fn hear(&mut self) {
        // Some batches take longer than others.
        let traveled = self.at / MS % 3 * MS;
        self.lifeline.hear(MonoNanos(self.at), ServerNanos(self.at + OFFSET + traveled));
    }

    fn rest(&mut self, nanos: i64) {
        self.at += nanos;
        self.hear();
    }

    fn step(&mut self, step: u64, millis: i64, pauses: &[(SpanKind, i64)]) {
        let (step, begin, end) = (Step(step), MonoNanos(self.at), MonoNanos(self.at + millis * MS));
        self.at = end.0;
        if self.lifeline.is_repeated(step) {
            self.lifeline.repeat(step, begin, end);
        } else {
            let parts = computed(millis, pauses);
            self.lifeline.count(&Counted { step, begin, end, parts: Some(&parts) });
        }
        self.hear();
    }
}

fn millis(goodput: &Goodput, time_use: TimeUse) -> i64 {
    goodput.uses.get(&time_use).map_or(0, |&nanos| nanos as i64 / MS)
}

/// Returns the lifeline of a rank that is killed after step 99 and starts again at step 80.
fn killed() -> Lifeline {
    let mut lifeline = Lifeline::default();
    let mut first = Process::start(&mut lifeline, 0, None, 0, 2 * S);
    first.rest(3 * S);
    for step in 0..100 {
        match step {
            50 => first.step(step, 520, &[(SpanKind::Evaluation, 500)]),
            20 | 80 => first.step(step, 120, &[(SpanKind::Checkpoint, 100)]),
            _ => first.step(step, 20, &[]),
        }
    }
    first.rest(15 * MS);
    let down = first.at + 4 * S;
    let mut second = Process::start(&mut lifeline, 1, Some(99), down, 2 * S);
    second.rest(S);
    (80..120).for_each(|step| second.step(step, 20, &[]));
    second.rest(300 * MS);
    second.lifeline.end(true);
    lifeline
}

#[test]
fn a_job_that_is_killed_and_repeats_steps_has_every_part_as_planted() {
    let goodput = goodput(&[Some(&killed()), Some(&killed())], &[], Now::Over).unwrap();
    let expected = [
        (TimeUse::Launch, 2_000),
        (TimeUse::Setup, 3_000),
        (TimeUse::WarmUp, 40),
        (TimeUse::Compute, 98 * 20 + 20 * 20),
        (TimeUse::Evaluation, 500),
        (TimeUse::Checkpoint, 200),
        (TimeUse::Recovery, 15 + 4_000 + 3_000),
        (TimeUse::Repeated, 400),
        (TimeUse::Ending, 300),
        (TimeUse::Hang, 0),
    ];
    for (time_use, rank_millis) in expected {
        assert_eq!(millis(&goodput, time_use), 2 * rank_millis, "{time_use:?}: {goodput:#?}");
    }
    assert_eq!(goodput.total_nanos(), 2 * goodput.wall_nanos);
    assert_eq!((goodput.repeated_steps, goodput.attempts.len(), goodput.knows_start), (20, 2, true));
    let [first, second] = &goodput.attempts[..] else { panic!("{goodput:#?}") };
    assert_eq!((first.steps, first.repeated_steps, first.ranks), (Some((0, 99)), 0, 2));
    assert_eq!((second.steps, second.repeated_steps), (Some((80, 119)), 20));
    let attempt_nanos: u64 = goodput.attempts.iter().flat_map(|attempt| attempt.uses.values()).sum();
    assert_eq!(attempt_nanos, goodput.total_nanos());
    let productive = f64::from(98 * 20 + 20 * 20);
    assert!((goodput.ratio - productive / (goodput.wall_nanos as f64 / 1e6)).abs() < 1e-12);
}

/// The steps of an unmodified job are recorded once they are found.
#[test]
fn steps_before_the_first_record_count_at_the_usual_length() {
    let mut lifeline = Lifeline::default();
    let mut process = Process::start(&mut lifeline, 0, None, 0, S);
    process.lifeline.counts_from_its_start();
    process.rest(5 * S);
    (30..50).for_each(|step| process.step(step, 100, &[]));
    lifeline.begin(1, Some(Step(49)));
    lifeline.counts_from_its_start();
    lifeline.hear(MonoNanos(20 * S), ServerNanos(20 * S + OFFSET));
    let parts = computed(100, &[]);
    let (begin, end) = (MonoNanos(21 * S), MonoNanos(21 * S + 100 * MS));
    lifeline.count(&Counted { step: Step(52), begin, end, parts: Some(&parts) });
    let goodput = goodput(&[Some(&lifeline)], &[], Now::Running).unwrap();
    assert_eq!(millis(&goodput, TimeUse::OtherInSteps), 3_000 + 200);
    assert_eq!(millis(&goodput, TimeUse::Setup), 2_000);
    assert_eq!(goodput.total_nanos(), goodput.wall_nanos);

    lifeline.resumes(Step(44));
    let goodput = super::goodput(&[Some(&lifeline)], &[], Now::Running).unwrap();
    assert_eq!(
        (millis(&goodput, TimeUse::Repeated), goodput.repeated_steps),
        (600, 6),
        "steps 44 to 49 are repeated"
    );
    assert_eq!(millis(&goodput, TimeUse::OtherInSteps), 3_000 + 200);
    assert_eq!(goodput.total_nanos(), goodput.wall_nanos);
}

/// A process that waits until its predecessor is known to have ended sends all its batches late.
#[test]
fn attempts_on_one_clock_are_placed_by_the_batch_that_traveled_fastest() {
    let recovery = |clock: &str| {
        let mut lifeline = Lifeline::default();
        let mut first = Process::start(&mut lifeline, 0, None, 0, S);
        first.lifeline.set_clock(clock);
        (0..10).for_each(|step| first.step(step, 100, &[]));
        let end = first.at;
        lifeline.begin(1, Some(Step(9)));
        lifeline.set_clock(clock);
        lifeline.hear(MonoNanos(end + S), ServerNanos(end + 3 * S + OFFSET));
        lifeline.repeat(Step(9), MonoNanos(end + S), MonoNanos(end + S + MS));
        millis(&goodput(&[Some(&lifeline)], &[], Now::Running).unwrap(), TimeUse::Recovery)
    };
    assert_eq!([recovery("boot"), recovery("")], [1_000, 3_000]);
}

#[test]
fn a_hang_is_one_in_a_step_between_steps_and_until_the_end() {
    let mut lifeline = Lifeline::default();
    let mut process = Process::start(&mut lifeline, 0, None, 0, S);
    (0..10).for_each(|step| process.step(step, 100, &[]));
    process.step(10, 12_100, &[]);
    process.rest(15 * S);
    process.step(11, 100, &[]);
    process.step(12, 20_100, &[(SpanKind::Checkpoint, 20_000)]);
    process.rest(11 * S);
    let end = ServerNanos(process.at + OFFSET);
    let goodput_when = |now| goodput(&[Some(&lifeline)], &[], now).unwrap();
    assert_eq!(millis(&goodput_when(Now::Running), TimeUse::Hang), 12_000 + 15_000);
    let finished = goodput_when(Now::Over);
    assert_eq!(millis(&finished, TimeUse::Hang), 12_000 + 15_000 + 11_000);
    assert_eq!(millis(&finished, TimeUse::Checkpoint), 20_000);
    assert_eq!(finished, goodput_when(Now::Waiting(end)), "a hang that continues");
}

#[test]
fn steps_without_records_are_steps_and_a_rank_that_is_never_heard_is_in_the_sum() {
    let mut lifeline = Lifeline::default();
    let mut process = Process::start(&mut lifeline, 0, None, 0, 0);
    (0..5).for_each(|step| process.step(step, 100, &[]));
    process.at += 900 * MS;
    process.step(14, 100, &[]);
    process.at += 30 * MS;
    process.step(15, 100, &[]);
    let goodput = goodput(&[Some(&lifeline), None], &[], Now::Running).unwrap();
    assert_eq!(millis(&goodput, TimeUse::OtherInSteps), 900);
    assert_eq!(millis(&goodput, TimeUse::Between), 30);
    assert_eq!(millis(&goodput, TimeUse::Launch), goodput.wall_nanos as i64 / MS);
    assert_eq!(goodput.total_nanos(), 2 * goodput.wall_nanos);
    assert_eq!(super::goodput(&[None], &[], Now::Running), Err(Missing::NoObservedStep));
    let unstepped = Lifeline::default();
    assert_eq!(
        super::goodput(&[Some(&unstepped)], &[], Now::Waiting(ServerNanos(0))),
        Err(Missing::NoObservedStep)
    );
}

proptest! {
    /// Whatever a process sends, the uses sum to the wall time of all ranks.
    #[test]
    fn the_uses_sum_to_the_wall_time_exactly(
        ranks in prop::collection::vec(prop::collection::vec(
            (0..90_i64, 0..20_i64, prop::collection::vec((0..4_u64, -50..30_000_i64, 0..15_000_i64), 0..12), 0..30_i64),
            0..4,
        ), 1..4),
        is_over in any::<bool>(),
    ) {
        let mut lifelines = Vec::new();
        for attempts in &ranks {
            let (mut lifeline, mut clock, mut done) = (Lifeline::default(), 0_i64, None);
            for (number, (down, imports, steps, rest)) in attempts.iter().enumerate() {
                let at = clock + down * S - 20 * S;
                let mut process = Process::start(&mut lifeline, number as u32, done, at, imports * S);
                let mut next = done.unwrap_or(0_u64).saturating_sub(3);
                for &(skipped, gap, millis) in steps {
                    // Steps may overlap the one before.
                    process.at += gap * MS;
                    process.step(next + skipped, millis, &[(SpanKind::Checkpoint, millis / 2)]);
                    next += skipped + 1;
                }
                process.rest(rest * S);
                clock = process.at;
                done = done.max(Some(next));
            }
            lifelines.push(lifeline);
        }
        let lifelines: Vec<_> = lifelines.iter().map(Some).collect();
        let now = if is_over { Now::Over } else { Now::Waiting(ServerNanos(500 * S)) };
        if let Ok(found) = goodput(&lifelines, &[], now) {
            prop_assert_eq!(found.total_nanos(), found.wall_nanos * lifelines.len() as u64);
            prop_assert!((0.0..=1.0).contains(&found.ratio));
        }
    }
}

/// A job on two ranks that continues with one, and then with three. All processes share a clock.
#[test]
fn a_rank_counts_only_while_the_job_has_it() {
    let life = |attempts: &[(u32, i64)]| {
        let mut lifeline = Lifeline::default();
        for &(number, seconds) in attempts {
            let done = [None, Some(9), Some(19)][number as usize];
            let mut process = Process::start(&mut lifeline, number, done, seconds * S, S);
            process.lifeline.set_clock("boot");
            let first = done.map_or(0, |done| done + 1);
            (first..first + 10).for_each(|step| process.step(step, 100, &[]));
        }
        lifeline
    };
    let ranks = [life(&[(0, 0), (1, 5), (2, 10)]), life(&[(0, 0), (2, 10)]), life(&[(2, 10)])];
    let ranks: Vec<Option<&Lifeline>> = ranks.iter().map(Some).collect();
    let goodput = goodput(&ranks, &[2, 1, 3], Now::Over).unwrap();
    assert_eq!((goodput.ranks, goodput.wall_nanos as i64), (3, 12 * S));
    assert_eq!(goodput.total_nanos() as i64, (12 + 2 + 2 + 2) * S, "{goodput:#?}");
    assert_eq!(millis(&goodput, TimeUse::Recovery), 3_000 + 3_000 + 2 * 1_000 + 1_000, "{goodput:#?}");
    assert_eq!(goodput.attempts.iter().map(|attempt| attempt.ranks).collect::<Vec<_>>(), [2, 1, 3]);
}
