//! Steps of jobs of different shapes.

mod alike;

use proptest::prelude::*;

use super::*;
use crate::infer::collective::Ran;

/// The collectives of a step: function, bytes, milliseconds since the previous one.
type Shape = [(Function, u64, i64)];

const DDP: [(Function, u64, i64); 3] =
    [(Function::AllReduce, 100, 60), (Function::AllReduce, 400, 10), (Function::AllReduce, 50, 12)];

struct Job {
    seqs: [u64; 16],
    time: i64,
    begins: Option<Begin>,
    has_one_optimizer: bool,
}

impl Job {
    fn new() -> Self {
        Self { seqs: [0; 16], time: 0, begins: None, has_one_optimizer: false }
    }

    /// Returns the next collective, which takes no time.
    fn next(&mut self, (function, bytes, millis): (Function, u64, i64)) -> Timed {
        self.time += millis * 1_000_000;
        let seq = self.seqs[function as usize];
        self.seqs[function as usize] += 1;
        let at = MonoNanos(self.time);
        let ran = Ran::Host { begin: at, end: at };
        let collective = Collective {
            communicator: 1,
            function,
            seq,
            bytes,
            launch: at,
            ran,
            is_sent: false,
            begins: self.begins,
        };
        Timed { collective, start: at, end: at, source: Source::HostClock }
    }

    fn run(&mut self, finder: &mut StepFinder, shape: &Shape, steps: usize) -> Vec<StepPosition> {
        let all = (0..steps).flat_map(|_| shape.iter().copied());
        all.filter_map(|collective| placed(finder.place(&self.next(collective)))).collect()
    }
}

fn placed(placing: Placing) -> Option<StepPosition> {
    match placing {
        Placing::In(place) => Some(place),
        Placing::Nowhere | Placing::Unexpected => None,
    }
}

/// Tests four identical buckets, as gradients of equal layers produce them, without a longer gap before the first
/// one.
#[test]
fn identical_buckets_are_distinguished_by_updates() {
    let (mut job, mut finder, mut places) = (Job::new(), StepFinder::default(), Vec::new());
    for collective in 0..400 {
        job.begins = Begin::new(7 + collective as u32 / 4, false).filter(|_| collective % 4 == 0);
        places.extend(
            placed(finder.place(&job.next((Function::AllReduce, 100, 10)))).map(|place| (collective, place)),
        );
    }
    assert!(finder.step_nanos() == Some(40_000_000) && places.len() > 200, "{places:?}");
    for (collective, place) in places {
        assert_eq!((place.step.0, place.bucket.0), (7 + collective / 4, (collective % 4) as u32));
        assert_eq!(place.is_last, collective % 4 == 3);
    }
}

/// Tests four identical buckets after input that is read before the second one.
#[test]
fn a_step_begins_after_its_input() {
    let (mut job, mut finder, mut places) = (Job::new(), StepFinder::default(), Vec::new());
    for collective in 0..400 {
        let bytes = [100, 300, 50, 200][collective % 4];
        let next = job.next((Function::AllReduce, bytes, 10));
        if collective % 4 == 1 {
            finder.ingest_input(next.collective.launch + -4_000_000);
        }
        places.extend(placed(finder.place(&next)).map(|place| (collective as u64, place)));
    }
    assert!(finder.has_clear_begin() && places.len() > 200, "{places:?}");
    for (collective, place) in places {
        assert_eq!(place.bucket.0, ((collective + 3) % 4) as u32, "collective {collective}");
    }
}

/// Collectives of a step after the update with this number, and how they are placed.
fn step(job: &mut Job, finder: &mut StepFinder, number: u64, shape: &Shape) -> Vec<Placing> {
    let first = shape.iter().enumerate();
    let placings = first.map(|(at, token)| {
        job.begins = Begin::new(number as u32, job.has_one_optimizer).filter(|_| at == 0);
        finder.place(&job.next(*token))
    });
    placings.collect()
}

#[test]
fn updates_begin_steps_whatever_else_a_step_has() {
    let logged = [(Function::AllGather, 8, 1), DDP[0], DDP[1], DDP[2]];
    // Some steps gather figures for the log first: seldom, or so often that no sequence repeats for a second.
    for interval in [40, 5] {
        let (mut job, mut finder) = (Job::new(), StepFinder::default());
        let mut ends = 0;
        for number in 1..200 {
            let shape = if number % interval == 0 { &logged[..] } else { &DDP };
            let placings = step(&mut job, &mut finder, number, shape);
            if number < 100 {
                continue;
            }
            for (at, placing) in placings.into_iter().enumerate() {
                let place = placed(placing).expect("steps are known");
                assert_eq!((place.step.0, place.bucket.0), (number, at as u32), "every {interval}");
                ends += u64::from(place.is_last);
            }
        }
        // The other steps end when the next one begins.
        assert!(ends >= 60, "{ends} ends, every {interval}");
    }
}

#[test]
fn the_updates_of_alternating_optimizers_are_one_step() {
    let (mut job, mut finder) = (Job::new(), StepFinder::default());
    for number in 1..100 {
        let shape: &Shape = if number % 2 == 0 { &DDP[..1] } else { &DDP[1..] };
        for (at, placing) in step(&mut job, &mut finder, number, shape).into_iter().enumerate() {
            if number > 60 {
                let place = placed(placing).expect("steps are known");
                assert_eq!(place.is_last, number % 2 == 1 && at == 1, "{place:?}");
            }
        }
    }
}

#[test]
fn a_new_shape_of_steps_becomes_the_usual_one() {
    let (mut job, mut finder) = (Job::new(), StepFinder::default());
    for number in 1..60 {
        step(&mut job, &mut finder, number, &DDP);
    }
    for number in 60..80 {
        let placings = step(&mut job, &mut finder, number, &DDP[..2]);
        let is_last = placed(placings[1]).expect("steps are known").is_last;
        assert_eq!(is_last, number >= 60 + u64::from(NEW_SHAPE), "step {number}");
    }
}

#[test]
fn steps_start_after_the_forward_pass_whatever_preceded_them() {
    let (mut job, mut finder) = (Job::new(), StepFinder::default());
    // Parameters are broadcast first, and the first step has its buckets in a different order.
    job.run(&mut finder, &[(Function::Broadcast, 9, 1), (Function::AllReduce, 550, 80)], 1);
    let places = job.run(&mut finder, &DDP, 60);
    assert!(finder.step_nanos() == Some(82_000_000) && places.len() > 100, "{places:?}");
    let (first, rest) = places.split_first().expect("places");
    for (before, after) in std::iter::once(first).chain(rest).zip(rest) {
        assert_eq!(after.bucket.0, (before.bucket.0 + 1) % 3);
        assert_eq!(after.step.0 - before.step.0, u64::from(before.is_last));
        assert_eq!(before.is_last, before.bucket.0 == 2);
    }
}

#[test]
fn ranks_that_find_steps_at_different_times_number_them_alike() {
    let places = |slow: i64| {
        let (mut job, mut finder) = (Job::new(), StepFinder { patience_nanos: slow, ..Default::default() });
        let mut by_seq = Vec::new();
        for at in 0..300 {
            let seen = job.next(DDP[at % 3]);
            by_seq.extend(placed(finder.place(&seen)).map(|place| (seen.collective.seq, place)));
        }
        by_seq
    };
    let (early, late) = (places(300_000_000), places(5_000_000_000));
    assert!(early.len() > late.len() && !late.is_empty());
    assert_eq!(early[early.len() - late.len()..], late);
}

#[test]
fn a_period_of_repeating_layers_is_replaced_once_the_step_repeats() {
    let mut shape = vec![(Function::AllReduce, 8, 20); 64];
    shape.push((Function::ReduceScatter, 1_000, 5));
    shape[0].2 = 200;
    let (mut job, mut finder) = (Job::new(), StepFinder::default());
    job.run(&mut finder, &shape, 40);
    let places = job.run(&mut finder, &shape, 20);
    assert_eq!(places.len(), 20 * 65, "every collective has a place");
    assert_eq!(places.iter().filter(|place| place.is_last).count(), 20);
}

/// Returns how a step of these functions and bytes begins, found from its collective at `skip` on.
fn begin_of(shape: &[(Function, u64)], skip: usize) -> (Function, u64) {
    let (mut job, mut finder) = (Job::new(), StepFinder::default());
    let shape: Vec<(Function, u64, i64)> =
        shape.iter().map(|&(function, bytes)| (function, bytes, 10)).collect();
    for at in skip..900 {
        finder.place(&job.next(shape[at % shape.len()]));
    }
    let first = finder.period.expect("steps are found").tokens[0];
    (first.function, first.bytes)
}

#[test]
fn the_order_of_a_step_gives_its_begin_to_every_rank() {
    use Function::{AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter};
    // Fully sharded: the forward pass gathers, and the backward pass gathers and reduces by turns.
    let sharded = [
        (AllGather, 7),
        (AllGather, 9),
        (AllGather, 5),
        (ReduceScatter, 5),
        (AllGather, 9),
        (ReduceScatter, 9),
        (ReduceScatter, 7),
    ];
    // Embeddings are exchanged forward and backward, between the buckets.
    let experts = [(AllToAll, 0), (AllToAll, 0), (AllReduce, 4), (AllToAll, 0), (AllReduce, 9)];
    let buffers = [(Broadcast, 3), (AllReduce, 4), (AllReduce, 9), (AllReduce, 9)];
    let layers = [(AllReduce, 2), (AllReduce, 2), (AllReduce, 2), (AllReduce, 90)];
    for shape in [&sharded[..], &experts, &buffers, &layers] {
        for skip in 0..shape.len() {
            assert_eq!(begin_of(shape, skip), shape[0], "from {skip} on: {shape:?}");
        }
    }
}

/// Returns the size of the first bucket of each of four ranks' steps. The buckets take 20, 5 and 30 ms, each rank has its gradients
/// for each at its own time, `lag` of rank 3 on all of them, and ranks leave a reduction up to 0.2 ms apart.
fn first_buckets(lag: i64) -> Vec<u64> {
    let first = |rank: i64| {
        let (mut job, mut finder, mut end) = (Job::new(), StepFinder::default(), 0);
        for at in 0..300_usize {
            let (bucket, compute, transfer) = [(100, 25, 20), (25, 4, 5), (150, 8, 30)][at % 3];
            let late = if at % 3 == 0 { lag } else { 0 };
            let own_late = if rank == 3 { late } else { 0 };
            let mut seen = job.next((Function::AllReduce, bucket, 0));
            seen.start = MonoNanos(end + (compute + own_late) * 1_000_000 - rank * 700_000);
            seen.end = MonoNanos(end + (compute + late + transfer) * 1_000_000 + rank * 50_000);
            (seen.collective.launch, job.time) = (seen.start, seen.end.0);
            end += (compute + late + transfer) * 1_000_000;
            finder.place(&seen);
        }
        finder.period.expect("steps are found").tokens[0].bytes
    };
    (0..4).map(first).collect()
}

#[test]
fn a_late_rank_and_those_that_wait_for_it_find_the_same_pause() {
    for lag in [0, 3, 10, 40] {
        assert_eq!(first_buckets(lag), [100; 4], "the forward pass lies before this bucket, lag {lag}");
    }
    // Where the pause is not clear, the order decides.
    assert_eq!(first_buckets(-20), [25; 4]);
}

#[test]
fn the_payload_size_of_an_all_to_all_does_not_matter() {
    let mut finder = StepFinder::default();
    let mut job = Job::new();
    let uneven = |step: u64| [(Function::AllToAll, 100 + step * 7 % 5, 30), (Function::AllReduce, 100, 5)];
    let places: Vec<StepPosition> =
        (0..100).flat_map(|step| job.run(&mut finder, &uneven(step), 1)).collect();
    assert!(places.len() > 100 && finder.step_nanos() == Some(35_000_000), "{places:?}");
    assert!(!finder.has_messages());
}

const FUNCTIONS: [Function; 3] = [Function::AllReduce, Function::ReduceScatter, Function::Reduce];

fn any_shape() -> impl Strategy<Value = Vec<(Function, u64, i64)>> {
    let token = (0..FUNCTIONS.len(), 1..4_u64, 1..10_i64);
    let token = token.prop_map(|(function, bytes, millis)| (FUNCTIONS[function], bytes, millis));
    proptest::collection::vec(token, 0..40)
}

proptest! {
    #[test]
    fn steps_of_any_shape_are_found(before in any_shape(), mut shape in any_shape()) {
        // A unique collective, which keeps any shorter sequence from repeating, and sorts first.
        shape.insert(0, (Function::Broadcast, 0, 200));
        let (mut job, mut finder) = (Job::new(), StepFinder::default());
        job.run(&mut finder, &before, 1);
        job.run(&mut finder, &shape, 30);
        let places = job.run(&mut finder, &shape, 10);
        prop_assert_eq!(places.len(), 10 * shape.len());
        for (at, place) in places.iter().enumerate() {
            prop_assert_eq!(place.bucket.0 as usize, at % shape.len());
            prop_assert_eq!(place.is_last, (at + 1) % shape.len() == 0);
            prop_assert_eq!(place.step.0 - places[0].step.0, (at / shape.len()) as u64);
        }
    }
}

#[test]
fn collectives_that_never_repeat_have_no_steps() {
    let (mut job, mut finder) = (Job::new(), StepFinder::default());
    let mut bytes = 1_u64;
    for _ in 0..20_000 {
        bytes = bytes.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        assert_eq!(finder.place(&job.next((Function::AllReduce, bytes >> 40, 1))), Placing::Nowhere);
    }
    assert_eq!(finder.history.len(), HISTORY);
}
