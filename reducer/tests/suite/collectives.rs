//! Tests of the ring against the reference.

use std::sync::Barrier;
use std::time::Duration;

use paceline_reducer::CommError;
use proptest::prelude::*;
use wire::ids::{Rank, Seq};

use crate::worlds::{KINDS, Kind, run, run_within};

/// Returns a value whose sums are exact, so that the order of summation has no effect.
fn exact(rank: u32, index: usize) -> f32 {
    ((index * 7 + rank as usize * 13) % 101) as f32 - 50.0
}

fn inexact(rank: u32, index: usize) -> f32 {
    ((index as f32 + 1.0) * 0.37 + rank as f32 * 1.7).sin() * 10f32.powi(index as i32 % 7 - 3)
}

fn reduce_in(kind: Kind, ranks: u32, lens: &[usize], value: fn(u32, usize) -> f32) -> Vec<Vec<Vec<f32>>> {
    run(kind, ranks, |mut comm| {
        let rank = comm.rank().0;
        let reduce = |len: &usize| {
            let mut data: Vec<f32> = (0..*len).map(|index| value(rank, index)).collect();
            comm.all_reduce(&mut data).unwrap();
            data
        };
        lens.iter().map(reduce).collect()
    })
}

#[test]
fn every_kind_sums_every_length() {
    let lens = [0, 1, 2, 3, 4, 5, 63, 1024, 65_535, 65_536, 65_537, 300_001, 1];
    for kind in KINDS {
        for ranks in [1, 2, 3, 4, 7] {
            let expected: Vec<Vec<f32>> = lens
                .iter()
                .map(|len| (0..*len).map(|index| (0..ranks).map(|rank| exact(rank, index)).sum()).collect())
                .collect();
            for (rank, found) in reduce_in(kind, ranks, &lens, exact).into_iter().enumerate() {
                assert!(found == expected, "{kind:?}, rank {rank} of {ranks}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_ring_agrees_with_the_reference(
        ranks in 1_u32..6,
        lens in prop::collection::vec(prop_oneof![0_usize..12, 0_usize..5_000, 60_000_usize..140_000], 1..4),
    ) {
        let reference = reduce_in(Kind::Threads, ranks, &lens, inexact);
        for kind in [Kind::Ring, Kind::TcpRing] {
            let found = reduce_in(kind, ranks, &lens, inexact);
            for (rank, all) in found.iter().enumerate() {
                for (sums, reference) in all.iter().zip(&reference[0]) {
                    for (index, (sum, reference)) in sums.iter().zip(reference).enumerate() {
                        let scale: f32 = (0..ranks).map(|rank| inexact(rank, index).abs()).sum();
                        prop_assert!((sum - reference).abs() <= scale * f32::EPSILON * ranks as f32);
                    }
                }
                prop_assert!(bits(all) == bits(&found[0]), "rank {rank} differs from rank 0");
            }
        }
    }
}

fn bits(all: &[Vec<f32>]) -> Vec<u32> {
    all.iter().flatten().map(|value| value.to_bits()).collect()
}

#[test]
fn broadcast_and_all_gather_reach_every_rank() {
    for kind in KINDS {
        for ranks in [1, 2, 5] {
            for root in 0..ranks {
                let found = run(kind, ranks, |mut comm| {
                    let rank = comm.rank().0;
                    let mut bytes = vec![rank as u8; if rank == root { 700_001 } else { 3 }];
                    comm.broadcast(Rank(root), &mut bytes).unwrap();
                    comm.barrier().unwrap();
                    let all = comm.all_gather(&vec![rank as u8; rank as usize * 300_000]).unwrap();
                    (bytes, all, comm.next_seq())
                });
                let expected: Vec<_> =
                    (0..ranks).map(|rank| vec![rank as u8; rank as usize * 300_000]).collect();
                for (bytes, all, next) in found {
                    assert!(bytes == vec![root as u8; 700_001], "{kind:?} of {ranks} from {root}");
                    assert!(all == expected, "{kind:?} of {ranks}");
                    assert_eq!(next, Seq(3));
                }
            }
        }
    }
}

#[test]
fn a_rank_that_does_not_arrive_is_named() {
    for kind in KINDS {
        let given_up = Barrier::new(3);
        let errors = run_within(kind, 3, Duration::from_millis(300), |mut comm| {
            (0..201).for_each(|_| comm.barrier().unwrap());
            // Rank 1 stays in the run, but joins no collective until the other ranks have given up.
            let early = (comm.rank() != Rank(1)).then(|| comm.all_reduce(&mut [1.0; 10]).unwrap_err());
            given_up.wait();
            early.unwrap_or_else(|| comm.barrier().unwrap_err())
        });
        for error in errors {
            let text = error.to_string();
            assert!(matches!(&error, CommError::TimedOut { seq: Seq(201), .. }), "{kind:?}: {text}");
            assert!(text.contains("rank 1 did not arrive (it last began collective 200)"), "{text}");
            assert!(!text.contains("rank 0") && !text.contains("rank 2"), "{text}");
        }
    }
}

#[test]
fn ranks_in_different_collectives_report_the_same_mismatch() {
    for kind in KINDS {
        let errors = run(kind, 3, |mut comm| {
            let len = if comm.rank() == Rank(2) { 11 } else { 10 };
            comm.all_reduce(&mut vec![1.0; len]).and_then(|()| comm.barrier()).unwrap_err()
        });
        for error in &errors {
            let text = error.to_string();
            assert!(matches!(error, CommError::Mismatch { .. }), "{kind:?}: {text}");
            assert!(text.contains("all-reduce of 11 floats") && text.contains("rank 2"), "{kind:?}: {text}");
            assert_eq!(error, &errors[0], "{kind:?}: all ranks report the same error");
        }
    }
}

#[test]
fn a_rank_that_gives_up_is_reported_by_all() {
    for kind in KINDS {
        let errors = run(kind, 3, |mut comm| {
            if comm.rank() == Rank(2) {
                comm.barrier().unwrap();
                comm.abort_handle().abort("out of samples");
            }
            // The other ranks may receive the verdict while they are still in the first barrier.
            std::iter::repeat_with(|| comm.barrier()).find_map(Result::err).unwrap()
        });
        for error in errors {
            assert_eq!(error.to_string(), "rank 2 gave up: out of samples", "{kind:?}");
        }
    }
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    for kind in KINDS {
        let errors = run(kind, 3, |mut comm| {
            comm.barrier().unwrap();
            if comm.rank() == Rank(0) { None } else { comm.barrier().err() }
        });
        for error in errors.into_iter().flatten() {
            assert!(error.to_string().starts_with("rank 0 is lost: "), "{kind:?}: {error}");
        }
    }
}
