//! Laws that hold for every live job, on simulated ones: verdicts depend neither on how ranks are numbered nor on where batches end,
//! and a rank that is left out changes nothing for the others.

use paceline::state::run::Run;
use paceline::store::segment::Received;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use serde_json::Value;
use testkit::simulator::{FaultKind, Plan, Simulation};
use wire::batch::{Batch, Note};
use wire::clock::ServerNanos;
use wire::ids::{BatchSeq, Rank};
use wire::views::{Cause, Culprit, Report, Verdict, VerdictState};

/// The jobs: each kind of fault on a rank, a fault that ends, two faults, stalls, uneven work, and none of these.
fn plans() -> Vec<Plan> {
    let small = || Plan { steps: 120, ..Plan::small(0) };
    let mut plans: Vec<Plan> =
        FaultKind::ALL.into_iter().map(|kind| small().with_fault(1, kind, 15_000_000)).collect();
    plans.push(small().with_fault_in(30..80, 2, FaultKind::Compute, 20_000_000));
    plans.push(small().with_fault(0, FaultKind::Input, 12_000_000).with_fault(
        3,
        FaultKind::Host,
        12_000_000,
    ));
    plans.push(Plan { stall_one_in: 30, stall: 60_000_000, ..small() });
    plans.push(Plan { jitter: 0.1, sequence_spread: 0.2, ..small() });
    plans.push(Plan { ranks: 7, ranks_per_host: 3, jitter: 0.05, ..small() });
    plans.push(Plan { ranks: 2, jitter: 0.2, alpha: 2_000_000, ..small() });
    (0..).zip(plans).map(|(seed, plan)| Plan { seed, ..plan }).collect()
}

fn report(batches: &[Received]) -> Report {
    let first = &batches[0];
    let mut run = Run::new(first.batch.run.clone(), first.batch.world_size, first.at);
    for Received { at, batch } in batches {
        run.apply(batch.clone(), *at).expect("a simulated batch is valid");
    }
    run.report(usize::MAX, batches.last().map_or(ServerNanos(0), |received| received.at))
}

/// What a verdict says, apart from its words.
type Said = (Option<Culprit>, Cause, VerdictState, u64, u64, (u64, u64), Option<u64>);

/// Returns what the verdicts and notes say, with other numbers of ranks.
fn said(report: &Report, number: impl Fn(u32) -> u32) -> Vec<Said> {
    let renamed = |culprit: &Culprit| match culprit {
        Culprit::Rank(rank) => Culprit::Rank(number(*rank)),
        Culprit::Ranks(ranks) => {
            let mut ranks: Vec<u32> = ranks.iter().map(|&rank| number(rank)).collect();
            ranks.sort_unstable();
            Culprit::Ranks(ranks)
        }
        Culprit::All => Culprit::All,
    };
    let summary = |verdict: &Verdict| {
        (
            verdict.culprit.as_ref().map(renamed),
            verdict.cause,
            verdict.state,
            verdict.cost_nanos_per_step,
            verdict.affected_steps,
            verdict.steps,
            verdict.example_step,
        )
    };
    let mut said: Vec<Said> = report.verdicts.iter().chain(&report.notes).map(summary).collect();
    said.sort_by_key(|said| format!("{said:?}"));
    said
}

/// Gives each rank another number.
fn relabeled(batches: &[Received], number: impl Fn(u32) -> u32) -> Vec<Received> {
    let renamed = |Received { at, batch }: &Received| Received {
        at: *at,
        batch: Batch { rank: Rank(number(batch.rank.0)), ..batch.clone() },
    };
    batches.iter().map(renamed).collect()
}

#[test]
fn the_numbers_of_ranks_change_no_verdict() {
    for plan in plans() {
        let simulation = Simulation::run(&plan);
        let before = report(&simulation.batches);
        let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
        let mut order: Vec<u32> = (0..plan.ranks as u32).collect();
        for _ in 0..6 {
            order.shuffle(&mut random);
            let number = |rank: u32| order[rank as usize];
            let after = report(&relabeled(&simulation.batches, number));
            assert_eq!(said(&after, |rank| rank), said(&before, number), "{plan:?} in order {order:?}");
        }
    }
}

/// Splits batches into some with at most so many records, which arrive at the same time.
fn split(batches: &[Received], most: usize) -> Vec<Received> {
    let mut split: Vec<Received> = Vec::new();
    let mut next = std::collections::BTreeMap::new();
    for Received { at, batch } in batches {
        let pieces = batch.events.chunks(most).map(<[_]>::to_vec);
        let pieces: Vec<_> = if batch.events.is_empty() { vec![Vec::new()] } else { pieces.collect() };
        let last = pieces.len() - 1;
        for (piece, events) in pieces.into_iter().enumerate() {
            let seq = next.entry(batch.rank).or_insert(0);
            let mut batch = Batch { seq: BatchSeq(*seq), events, ..batch.clone() };
            *seq += 1;
            if piece > 0 {
                batch.probes.clear();
            }
            // What a rank says of itself comes first, and the end of a run with the last records.
            batch.notes.retain(|note| if matches!(note, Note::Bye(_)) { piece == last } else { piece == 0 });
            split.push(Received { at: *at, batch });
        }
    }
    split
}

#[test]
fn where_batches_end_changes_nothing() {
    let text =
        |batches: &[Received]| -> Value { serde_json::to_value(report(batches)).expect("a report is JSON") };
    for plan in plans() {
        let simulation = Simulation::run(&plan);
        let whole = text(&simulation.batches);
        for most in [1, 5, 17] {
            assert_eq!(text(&split(&simulation.batches, most)), whole, "{plan:?} in batches of {most}");
        }
    }
}

#[test]
fn without_an_innocent_rank_the_culprit_stays_the_same_and_no_other_is_blamed() {
    for (seed, kind) in (0..).zip(FaultKind::ALL) {
        for innocent in [0, 1, 3] {
            let plan = Plan { steps: 120, ..Plan::small(seed).with_fault(2, kind, 20_000_000) };
            let mut batches = Simulation::run(&plan).batches;
            batches.retain(|received| received.batch.rank.0 != innocent);
            let number = |rank: u32| rank - u32::from(rank > innocent);
            let mut left = relabeled(&batches, number);
            left.iter_mut().for_each(|received| received.batch.world_size = 3);
            let report = report(&left);
            let blamed: Vec<(&Option<Culprit>, Cause)> =
                report.verdicts.iter().map(|verdict| (&verdict.culprit, verdict.cause)).collect();
            let blamed_ranks = blamed.iter().filter(|(culprit, _)| **culprit != Some(Culprit::All));
            let expected = Some(Culprit::Rank(number(2)));
            assert!(blamed_ranks.clone().count() > 0, "{kind:?} without {innocent}: {blamed:?}");
            assert!(
                blamed_ranks.clone().all(|(culprit, _)| **culprit == expected),
                "{kind:?} without {innocent}: {blamed:?}"
            );
        }
    }
}
