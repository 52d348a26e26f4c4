//! The longest of stages of made steps, and the false alarms of drawn ones.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use wire::ids::{Comm, Step};

use wire::views::ComputedOn;

use std::collections::BTreeSet;

use wire::event::Function;
use wire::views::Group;

use super::*;
use crate::step::CollectiveAnalysis;
use crate::verdict::fixture::replay;
use crate::verdict::{Setting, judge};
use crate::{fixtures, wording};

const MS: u64 = 1_000_000;

fn collective(function: Function, ranks: &[usize]) -> CollectiveAnalysis {
    CollectiveAnalysis {
        group: Group::from_ranks(ranks.iter().copied()),
        first: ranks[0],
        comm: Comm(7),
        seq: function.numbered(3),
        duration_nanos: 1,
        ..fixtures::collective()
    }
}

/// A step of three stages with four data-parallel ranks each. A rank computes for as long as its entry says.
fn step(compute: [u64; 12], further: &[CollectiveAnalysis]) -> StepAnalysis {
    let rank = |nanos: u64| {
        let mut parts = [0; Part::COUNT];
        parts[Part::Forward as usize] = nanos;
        Some(Box::new(RankAnalysis { compute_nanos: nanos, ..fixtures::rank(parts) }))
    };
    let stages = (0..3).map(|stage| [0, 1, 2, 3].map(|at| 4 * stage + at));
    let mut collectives: Vec<_> = stages.map(|ranks| collective(Function::ReduceScatter, &ranks)).collect();
    collectives.extend((0..8).map(|rank| collective(Function::SendReceive, &[rank, rank + 4])));
    collectives.extend_from_slice(further);
    StepAnalysis { ranks: compute.map(rank).to_vec(), collectives, ..fixtures::step(3) }
}

fn found(steps: &[StepAnalysis]) -> Option<Longest> {
    longest(&steps.iter().collect::<Vec<_>>())
}

#[test]
fn the_rank_that_computes_longest_of_its_stage_is_named() {
    // The last stage computes longer than the others by design.
    let slow = |at: u64| {
        let mut compute = [100, 101, 102, 103, 100, 100, 102, 101, 180, 181, 183, 182].map(|ms| ms * MS);
        compute[5] += (40 + at) * MS;
        step(compute, &[])
    };
    let found = found(&(0..9).map(slow).collect::<Vec<_>>()).unwrap();
    assert_eq!((found.rank, found.steps, &found.among[..]), (5, 9, &[4, 5, 6, 7][..]));
    assert!((found.nanos - 42.0 * MS as f64).abs() < 1.0 && found.chance <= MAX_CHANCE, "{found:?}");
}

#[test]
fn a_recorded_job_says_what_the_rank_of_a_stage_computes_and_not_that_ranks_take_turns() {
    let replay = replay(150e6, 30e6, vec![0.0; 12]);
    let slow = |number: u64| {
        let mut compute = [100 * MS; 12];
        compute[2] += 50 * MS;
        StepAnalysis { step: Step(number), replay: Some(replay.clone()), ..step(compute, &[]) }
    };
    let says = |steps: u64, is_recorded: bool| {
        let steps: Vec<StepAnalysis> = (0..steps).map(slow).collect();
        let setting = Setting {
            computed_on: ComputedOn::Gpu,
            notable_share: 0.05,
            hidden_steps: &[],
            is_recorded,
            is_on_bare_metal: false,
            course: &[],
            has_only_collectives: false,
        };
        let (found, _) = judge(&steps.iter().collect::<Vec<_>>(), &setting);
        found.verdicts.into_iter().map(|finding| wording::verdict(finding).sentence).collect::<Vec<_>>()
    };
    let sentence = "Rank 2 computes 50.0 ms per step longer than any other rank of its group; ranks that are slower than others like \
                    them cost 30.0 ms per step (20.0 % of step time).";
    assert_eq!(says(40, true), [sentence]);
    assert_eq!(says(6, true), [sentence], "few steps are judged alike");
    assert_eq!(says(2, true), [""; 0], "two steps are chance");
    assert_eq!(says(40, false), [""; 0], "compute of a live run may have waits in it");
}

#[test]
fn ranks_that_do_other_work_are_not_compared() {
    let across = collective(Function::AllReduce, &[0, 4, 8]);
    let steps = vec![step([0, 0, 0, 0, 0, 0, 0, 0, MS, MS, MS, 9 * MS], &[across]); 9];
    assert_eq!(found(&steps), None);
    // Ranks 0, 4 and 8 have messages with other neighbors, and run a reduction that the other ranks of their stages do not.
    assert_eq!(alike(&steps[0]), BTreeSet::new());
    assert_eq!(alike(&step([0; 12], &[])).len(), 3);
}

/// Draws healthy jobs, in which ranks of a stage are equally often the longest: in how many is one named?
#[test]
fn in_healthy_jobs_a_rank_is_named_as_seldom_as_the_limit_says() {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut job = || {
        let steps = random.random_range(3..40);
        let mut compute = || [0; 12].map(|_: u64| 10_f64.powf(random.random_range(4.0..9.0)) as u64);
        (0..steps).map(|_| step(compute(), &[])).collect::<Vec<_>>()
    };
    let alarms = (0..200).filter(|_| found(&job()).is_some()).count();
    // 2 of 200 are expected; 8 are less likely than 0.1 %.
    assert!(alarms < 8, "{alarms}");
}
