//! Restarts and long starts among the verdicts.

use std::collections::BTreeMap;

use wire::views::goodput::Attempt;

use super::*;
use crate::verdict::fixture::finding_on_rank_1;
use crate::wording;

const S: u64 = 1_000_000_000;

/// A run of two ranks in 1,000 s with these uses of each rank, and the rest in steps.
fn goodput(attempts: u32, uses: &[(TimeUse, u64)]) -> Goodput {
    let mut all: BTreeMap<TimeUse, u64> =
        uses.iter().map(|&(time_use, seconds)| (time_use, 2 * seconds * S)).collect();
    let rest = 2_000 * S - all.values().sum::<u64>();
    all.insert(TimeUse::Compute, rest);
    let attempt = |number| Attempt {
        number,
        began_unix_millis: 0,
        ranks: 2,
        steps: Some((100 * u64::from(number), 100 * u64::from(number) + 120)),
        repeated_steps: 20,
        uses: BTreeMap::new(),
    };
    Goodput {
        ratio: 0.5,
        compute_ratio: 0.5,
        wall_nanos: 1_000 * S,
        ranks: 2,
        uses: all,
        repeated_steps: 20 * u64::from(attempts - 1),
        knows_start: true,
        attempts: (0..attempts).map(attempt).collect(),
    }
}

/// A step of a second. A tenth of it is a checkpoint.
fn step() -> StepAccount {
    StepAccount {
        pauses: [S as f64 / 10.0, 0.0, 0.0, 0.0],
        uneven: crate::account::Uneven::default(),
        usual: [0.0, 0.0, 0.9 * S as f64, 0.0, 0.0, 0.0, 0.0],
        transfer: 0.0,
    }
}

fn found(goodput: &Goodput) -> Findings {
    found_with(goodput, &[])
}

fn found_with(goodput: &Goodput, waits: &[u64]) -> Findings {
    // It costs 5 ms in each of five of the 500 s.
    let mut found = Findings { verdicts: vec![finding_on_rank_1(Cause::Compute)], notes: Vec::new() };
    add(&mut found, goodput, &[step(); 500], waits, 0.05);
    found
}

#[test]
fn restarts_that_cost_most_come_first_with_what_each_costs() {
    let goodput = goodput(4, &[(TimeUse::Recovery, 90), (TimeUse::Repeated, 150), (TimeUse::Launch, 8)]);
    let [restarts, rank] = &found(&goodput).verdicts[..] else { panic!("two verdicts") };
    assert_eq!(rank.verdict.cause, Cause::Compute);
    let said = wording::verdict(restarts.clone());
    assert_eq!(
        said.sentence,
        "The job was restarted 3 times, and each time cost 80.0 s (30.0 s until the first step and 50.0 s of steps done again): \
         24.0 % of the wall time."
    );
    assert_eq!((said.cause, said.lost_nanos(), said.affected_steps), (Cause::Restart, 240 * S, 3));
    assert_eq!(said.recurrence.map(|recurrence| recurrence.steps), Some(vec![100, 200, 300]));
    assert!(said.advice.contains("Write checkpoints more often"), "{}", said.advice);
    assert_eq!(said.evidence[0], "there were 4 attempts at the job, and 60 steps were done again");
    // sqrt(2 * 0.1 * 333) less the checkpoint itself.
    assert!(said.evidence[1].contains("a checkpoint every 8.1"), "{:?}", said.evidence);
}

#[test]
fn losses_in_steps_that_cost_more_come_before_restarts() {
    let goodput = goodput(2, &[(TimeUse::Recovery, 60)]);
    let mut costly = finding_on_rank_1(Cause::Compute);
    (costly.verdict.cost_nanos_per_step, costly.verdict.affected_steps) = (S / 5, 500);
    let mut found = Findings { verdicts: vec![costly], notes: Vec::new() };
    add(&mut found, &goodput, &[step(); 500], &[], 0.05);
    let causes: Vec<Cause> = found.verdicts.iter().map(|finding| finding.verdict.cause).collect();
    assert_eq!(causes, [Cause::Compute, Cause::Restart]);
    let said = wording::verdict(found.verdicts[1].clone());
    assert!(
        said.sentence.starts_with("The job was restarted once, which cost 60.0 s (until the first step)"),
        "{said:?}"
    );
    assert!(said.advice.contains("make the restart itself faster"), "{}", said.advice);
}

#[test]
fn a_start_is_a_loss_if_it_is_long_in_seconds_and_in_share() {
    let start = |seconds| found(&goodput(1, &[(TimeUse::Launch, 20), (TimeUse::Setup, seconds)]));
    let long = start(200);
    assert_eq!(long.verdicts[0].verdict.cause, Cause::Start);
    let said = wording::verdict(long.verdicts[0].clone());
    assert_eq!(
        said.sentence,
        "The job took 3 min 40 s to reach its first step, 22.0 % of the wall time so far."
    );
    assert!(
        start(30)
            .verdicts
            .iter()
            .chain(&start(30).notes)
            .all(|finding| finding.verdict.cause != Cause::Start)
    );
    let mut short_share = goodput(1, &[(TimeUse::Launch, 20), (TimeUse::Setup, 200)]);
    short_share.uses.insert(TimeUse::Compute, 20_000 * S);
    short_share.wall_nanos = 10_220 * S;
    assert!(found(&short_share).notes.iter().any(|note| note.verdict.cause == Cause::Start), "it is a note");
}

#[test]
fn a_start_names_the_rank_that_the_others_wait_for() {
    let goodput = goodput(1, &[(TimeUse::Launch, 20), (TimeUse::Setup, 200)]);
    let long = |waits: &[u64]| wording::verdict(found_with(&goodput, waits).verdicts[0].clone());
    let named = long(&[190 * S, 3 * S]);
    assert_eq!(named.culprit, Some(Culprit::Rank(1)));
    assert_eq!(
        named.sentence,
        "The job took 3 min 40 s to reach its first step, 22.0 % of the wall time so far; the other ranks waited 3 min 07 s for rank 1."
    );
    assert_eq!(long(&[90 * S, 0]).culprit, Some(Culprit::All), "less than half of it");
    assert_eq!(long(&[190 * S, 3 * S, 3 * S]).culprit, Some(Culprit::All), "one rank waited for two");
}
