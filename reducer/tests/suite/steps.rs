//! Tests of whole steps of the reducer over several ranks, and of every misuse.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]

use agent::StepContext;
use paceline_reducer::bucketing::Caps;
use paceline_reducer::{
    Communicator, Instruments, Options, ParamId, Parameter, ReduceError, Reducer, Share, UnusedParameters,
};
use proptest::prelude::*;
use wire::ids::{Rank, Step};

use crate::worlds::{KINDS, Kind, run};

const SMALL: Caps = Caps { first_bytes: 16, other_bytes: 40 };

pub fn context(step: u64) -> StepContext {
    StepContext { step: Step(step), shadow: false }
}

fn small() -> Options {
    Options { caps: SMALL, ..Options::default() }
}

fn model(lens: &[usize]) -> Vec<Parameter> {
    lens.iter().enumerate().map(|(id, len)| Parameter::new(format!("p{id}"), [*len])).collect()
}

fn reducer(lens: &[usize], comm: Box<dyn Communicator>, options: Options) -> Reducer {
    Reducer::new(model(lens), comm, options, Instruments::none()).unwrap()
}

/// Returns a gradient of small whole numbers, whose sums are exact.
fn gradient(rank: u32, step: u64, id: u32, len: usize) -> Vec<f32> {
    (0..len)
        .map(|index| ((rank as usize * 5 + step as usize * 3 + id as usize * 7 + index) % 17) as f32)
        .collect()
}

fn ids(lens: &[usize]) -> Vec<ParamId> {
    (0..lens.len() as u32).map(ParamId).collect()
}

/// Finishes a step and returns its averages, by parameter.
fn finish(reducer: &mut Reducer) -> Vec<Option<Vec<f32>>> {
    reducer.finish_step().unwrap().gradients().map(|(_, gradient)| gradient.map(<[f32]>::to_vec)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn averages_do_not_depend_on_the_order_of_gradients(
        lens in prop::collection::vec(0_usize..30, 1..9),
        ranks in prop_oneof![Just(1_u32), Just(2), Just(4)],
        orders in prop::collection::vec(any::<u64>(), 4),
        ring: bool,
    ) {
        let kind = if ring { Kind::Ring } else { Kind::Threads };
        let found = run(kind, ranks, |comm| {
            let rank = comm.rank().0;
            let mut reducer = reducer(&lens, comm, small());
            let mut steps = Vec::new();
            for step in 0..3 {
                reducer.begin_step(context(step), Share::even(ranks)).unwrap();
                let mut order = ids(&lens);
                // The order differs between ranks and between steps.
                order.sort_by_key(|id| (u64::from(id.0) + 1).wrapping_mul(orders[rank as usize] | 1).rotate_left(step as u32));
                for id in order {
                    reducer.mark_ready(id, &gradient(rank, step, id.0, lens[id.0 as usize])).unwrap();
                }
                steps.push(finish(&mut reducer));
            }
            (steps, reducer.layout())
        });
        for (steps, layout) in &found {
            prop_assert_eq!(layout, &found[0].1);
            for (step, gradients) in (0..).zip(steps) {
                for (id, found) in (0..).zip(gradients) {
                    let len = lens[id as usize];
                    let mut expected = vec![0.0; len];
                    for rank in 0..ranks {
                        let own = gradient(rank, step, id, len);
                        expected.iter_mut().zip(own).for_each(|(sum, value)| *sum += value / ranks as f32);
                    }
                    prop_assert_eq!(found.as_ref(), Some(&expected));
                }
            }
        }
    }
}

#[test]
fn buckets_are_rebuilt_in_rank_0s_order() {
    let lens = [4, 4, 4, 4];
    for kind in KINDS {
        let layouts = run(kind, 2, |comm| {
            let rank = comm.rank();
            let mut reducer = reducer(&lens, comm, small());
            let mut layouts = vec![reducer.layout()];
            let order = if rank == Rank(0) { [2, 0, 3, 1] } else { [0, 1, 2, 3] };
            for step in 0..2 {
                reducer.begin_step(context(step), Share::even(2)).unwrap();
                order.iter().for_each(|id| reducer.mark_ready(ParamId(*id), &[1.0; 4]).unwrap());
                finish(&mut reducer);
                layouts.push(reducer.layout());
            }
            layouts
        });
        for rank in layouts {
            let names = |layout: &wire::layout::Layout| {
                layout.buckets.iter().map(|bucket| bucket.parameters.join(" ")).collect::<Vec<_>>()
            };
            assert_eq!(names(&rank[0]), ["p3", "p2 p1 p0"], "declared order, reversed");
            assert_eq!(names(&rank[1]), ["p3", "p2 p1 p0"], "after the first step");
            assert_eq!(names(&rank[2]), ["p2", "p0 p3 p1"], "rank 0's ready order");
            assert_eq!((rank[0].generation, rank[2].generation), (0, 1));
            assert_eq!(rank[2].buckets.iter().map(|bucket| bucket.bytes).sum::<u64>(), 64);
        }
    }
}

#[test]
fn micro_batches_are_summed_and_reduced_once() {
    let lens = [3, 5];
    let found = run(Kind::Ring, 2, |comm| {
        let rank = comm.rank().0;
        let mut reducer = reducer(&lens, comm, small());
        reducer.begin_accumulated_step(context(0), Share::even(6), 3).unwrap();
        for micro in 0..3 {
            for id in ids(&lens) {
                reducer.mark_ready(id, &vec![(rank * 3 + micro) as f32 * 6.0; lens[id.0 as usize]]).unwrap();
            }
            if micro < 2 {
                reducer.next_micro_batch(Share::even(6)).unwrap();
            }
        }
        finish(&mut reducer)
    });
    for gradients in found {
        for value in gradients.into_iter().flat_map(Option::unwrap) {
            assert!((value - 15.0).abs() < 1e-4, "{value} instead of 0+1+2+3+4+5");
        }
    }
}

#[test]
fn uneven_shares_keep_the_average_exact() {
    // Rank 0 has 3 samples, rank 1 has 1, rank 2 has none.
    let found = run(Kind::Ring, 3, |comm| {
        let rank = comm.rank().0;
        let mut reducer = reducer(&[2], comm, small());
        for step in 0..2 {
            let share = [Share::new(3, 4), Share::new(1, 4), Share::nothing()][rank as usize];
            reducer.begin_step(context(step), share).unwrap();
            if rank < 2 {
                reducer.mark_ready(ParamId(0), &[[4.0, 8.0], [16.0, 0.0]][rank as usize]).unwrap();
            }
            assert_eq!(finish(&mut reducer), [Some(vec![7.0, 6.0])]);
        }
    });
    assert_eq!(found.len(), 3);
}

#[test]
fn an_unused_parameter_counts_as_zero_and_has_no_gradient_if_no_rank_uses_it() {
    let options = Options { unused: UnusedParameters::Find, ..small() };
    let lens = [2, 2, 2];
    run(Kind::Ring, 2, |comm| {
        let rank = comm.rank().0;
        let mut reducer = reducer(&lens, comm, options);
        for step in 0..3 {
            reducer.begin_step(context(step), Share::even(2)).unwrap();
            // Rank 0 uses p0, no rank uses p1, both use p2. Unused parameters are marked at once or found at the end.
            if rank == 0 {
                reducer.mark_ready(ParamId(0), &[8.0, 4.0]).unwrap();
            } else if step > 0 {
                reducer.mark_unused(ParamId(0)).unwrap();
            }
            reducer.mark_ready(ParamId(2), &[2.0, 2.0]).unwrap();
            assert_eq!(
                finish(&mut reducer),
                [Some(vec![4.0, 2.0]), None, Some(vec![2.0, 2.0])],
                "step {step}"
            );
        }
    });
}

/// Runs `misuse` on rank 1 of two, with a reducer of two parameters, while rank 0 uses its reducer correctly.
fn check(misuse: impl Fn(&mut Reducer) -> Result<(), ReduceError> + Sync, expected: &str) {
    for kind in [Kind::Threads, Kind::Ring] {
        let errors = run(kind, 2, |comm| {
            let rank = comm.rank();
            let options = Options { rebuild: false, ..small() };
            let mut reducer = match Reducer::new(model(&[2, 3]), comm, options, Instruments::none()) {
                Ok(reducer) => reducer,
                // Rank 1 was so fast that rank 0 receives its error while they still compare their models.
                Err(error) => return error.to_string(),
            };
            let fine = |reducer: &mut Reducer| {
                reducer.begin_step(context(7), Share::even(2))?;
                reducer.mark_ready(ParamId(1), &[0.0; 3])?;
                reducer.mark_ready(ParamId(0), &[0.0; 2])?;
                reducer.finish_step().map(drop)
            };
            let outcome = if rank == Rank(1) { misuse(&mut reducer) } else { Ok(()) };
            let error = outcome.and_then(|()| fine(&mut reducer)).unwrap_err();
            assert_eq!(fine(&mut reducer).unwrap_err(), error, "a failed reducer repeats its error");
            assert_eq!(reducer.failure(), Some(&error));
            error.to_string()
        });
        assert!(errors[1].contains(expected), "{kind:?}: {:?} lacks {expected:?}", errors[1]);
        let told = errors[0] == errors[1] || errors[0].starts_with("rank 1 gave up: ");
        assert!(told && errors[0].contains(expected), "{kind:?}: rank 0 says {:?}", errors[0]);
    }
}

#[test]
fn all_ranks_report_a_misuse() {
    let begin = |reducer: &mut Reducer| reducer.begin_step(context(7), Share::even(2));
    check(
        |reducer| {
            begin(reducer)?;
            reducer.mark_ready(ParamId(1), &[0.0; 3])?;
            reducer.mark_ready(ParamId(1), &[0.0; 3])
        },
        "parameter \"p1\" was marked ready twice in step 7",
    );
    check(
        |reducer| {
            begin(reducer)?;
            reducer.mark_ready(ParamId(1), &[0.0; 2])
        },
        "the gradient of \"p1\" has 2 elements, but the parameter has 3 (shape [3])",
    );
    check(
        |reducer| {
            begin(reducer)?;
            reducer.mark_ready(ParamId(1), &[0.0; 3])?;
            reducer.finish_step().map(drop)
        },
        "step 7 ended on rank 1, but 1 of 2 parameters got no gradient: \"p0\".",
    );
    check(
        |reducer| {
            begin(reducer)?;
            reducer.mark_unused(ParamId(0))
        },
        "parameter \"p0\" was marked unused, but the reducer was made with UnusedParameters::Refuse",
    );
    check(
        |reducer| begin(reducer).and_then(|()| begin(reducer)),
        "begin_step in step 7: this step is not finished",
    );
    check(|reducer| reducer.finish_step().map(drop), "finish_step in step 0: no step has begun");
    check(|reducer| reducer.mark_ready(ParamId(0), &[0.0; 2]), "mark_ready in step 0: no step has begun");
    check(
        |reducer| {
            begin(reducer)?;
            reducer.next_micro_batch(Share::even(2))
        },
        "the current micro-batch is the last",
    );
    check(
        |reducer| {
            reducer.begin_accumulated_step(context(7), Share::even(4), 2)?;
            reducer.mark_ready(ParamId(1), &[0.0; 3])?;
            reducer.mark_ready(ParamId(0), &[0.0; 2])?;
            reducer.finish_step().map(drop)
        },
        "1 announced micro-batches are missing",
    );
    check(
        |reducer| {
            reducer.abort("the disk is full");
            Ok(())
        },
        "gave up: the disk is full",
    );
}

#[test]
fn all_ranks_refuse_shares_that_do_not_sum_to_one() {
    let errors = run(Kind::Ring, 2, |comm| {
        let share = if comm.rank() == Rank(0) { Share::even(2) } else { Share::new(1, 3) };
        let mut reducer = reducer(&[2], comm, small());
        reducer.begin_step(context(4), share).unwrap();
        reducer.mark_ready(ParamId(0), &[1.0; 2]).unwrap();
        reducer.finish_step().err().unwrap().to_string()
    });
    for error in errors {
        assert!(error.contains("the shares of all ranks in step 4 sum to 0.8333"), "{error}");
    }
}

fn mismatch(models: impl Fn(Rank) -> (Vec<Parameter>, Options) + Sync, expected: &str) {
    for kind in KINDS {
        let errors = run(kind, 3, |comm| {
            let (parameters, options) = models(comm.rank());
            Reducer::new(parameters, comm, options, Instruments::none()).err().unwrap().to_string()
        });
        for error in errors {
            let text = format!("the ranks do not have the same model; compared with rank 0: {expected}");
            assert_eq!(error, text, "{kind:?}");
        }
    }
}

#[test]
fn all_ranks_refuse_models_that_differ() {
    let head = |shape: [usize; 2]| vec![Parameter::new("body", [2]), Parameter::new("head", shape)];
    mismatch(
        |rank| (head(if rank == Rank(2) { [5, 4] } else { [4, 5] }), small()),
        "rank 2: parameter 1 is \"head\" with shape [5, 4], on rank 0 it is \"head\" with shape [4, 5]",
    );
    mismatch(
        |rank| (model(if rank == Rank(0) { &[2, 2] } else { &[2, 2, 2] }), small()),
        "rank 1: it has 3 parameters, rank 0 has 2; the first that differs is parameter 2, \"p2\" with shape [2]; \
         rank 2: it has 3 parameters, rank 0 has 2; the first that differs is parameter 2, \"p2\" with shape [2]",
    );
    let swapped = |rank| {
        let names = if rank == Rank(1) { ["b", "a"] } else { ["a", "b"] };
        (names.map(|name| Parameter::new(name, [1])).into(), small())
    };
    mismatch(swapped, "rank 1: parameter 0 is \"b\" with shape [1], on rank 0 it is \"a\" with shape [1]");
}

#[test]
fn empty_models_and_duplicate_names_are_refused() {
    let make = |parameters| {
        let comm = paceline_reducer::local::world(1, std::time::Duration::from_secs(1)).remove(0);
        Reducer::new(parameters, Box::new(comm), small(), Instruments::none()).err().unwrap().to_string()
    };
    assert_eq!(make(Vec::new()), "there is nothing to reduce: the list of parameters is empty");
    let twice = [1, 2, 3].map(|len| Parameter::new(if len == 2 { "b" } else { "a" }, [len])).into();
    assert_eq!(make(twice), "parameters 0 and 2 are both named \"a\": names must be unique");
}

#[test]
fn a_rank_that_panics_is_named() {
    for kind in KINDS {
        let errors = run(kind, 2, |comm| {
            let mut reducer = reducer(&[2], comm, small());
            if reducer.rank() == Rank(1) {
                let training = std::thread::spawn(move || {
                    reducer.begin_step(context(0), Share::even(2)).unwrap();
                    std::panic::panic_any(());
                });
                return training.join().map(|()| String::new()).unwrap_or_default();
            }
            reducer.begin_step(context(0), Share::even(2)).unwrap();
            let marked = reducer.mark_ready(ParamId(0), &[1.0; 2]);
            marked.and_then(|()| reducer.finish_step().map(drop)).unwrap_err().to_string()
        });
        assert_eq!(errors[0], "rank 1 gave up: its training thread panicked", "{kind:?}");
    }
}
