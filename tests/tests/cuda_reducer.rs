//! The reducer on CUDA and NCCL, on the stand-in for a GPU: gradients, event times that were worked out by hand, and what
//! happens when a rank or NCCL fails. Nothing here is a figure of any GPU.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use agent::{Agent, Config, Job};
use anyhow::{Context as _, ensure};
use cudarc::driver::CudaSlice;
use paceline_tests::collector::Collector;
use paceline_tests::cuda_ranks::{FLOATS, PARAMETERS, Rig, options, ranks, step_until_error};
use paceline_tests::fake_gpu;
use reducer::cuda::{DeviceTimes, Transport};
use reducer::{
    CommError, Instruments, Options, ParamId, Parameter, ReduceError, Reducer, Share, UnusedParameters, local,
};
use wire::batch::Note;
use wire::device::DeviceSample;
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, StepRecord};
use wire::ids::{Rank, RunId, Step};

/// A kernel that scales a gradient into its bucket.
const SCALE: i64 = 2_000;
/// A float of milliseconds is good to 8 ns up to 131 ms.
const ROUNDING: i64 = 16;

fn observe(server: &str, rank: Rank, world_size: u32) -> Agent {
    Agent::start(Config {
        server: server.into(),
        token: None,
        run: RunId::new("on-a-fake-gpu").expect("a good name"),
        rank,
        local_rank: rank.0,
        world_size,
        job: Job { name: "on-a-fake-gpu".into(), sample_unit: "rows".into(), parameters: 0 },
        origin: "reducer".into(),
        spool_bytes: 1 << 20,
        shadow_every: 0,
        overhead_budget: 1.0,
    })
}

/// What one rank recorded.
#[derive(Default)]
struct Recorded {
    buckets: Vec<BucketRecord>,
    spans: Vec<Span>,
    steps: Vec<StepRecord>,
    devices: Vec<DeviceSample>,
}

const STEPS: u64 = 3;
const OPTIMIZER: u64 = 50_000;

/// Steps with three kernels of `backward` nanoseconds and one of the optimizer's; the host is ahead all the time.
fn train(rig: Rig, server: &str, size: u32, backward: impl Fn(Rank) -> u64) -> anyhow::Result<Vec<f32>> {
    let rank = rig.control.rank();
    let agent = observe(server, rank, size);
    let compute = rig.cuda.compute.clone();
    let gradient: CudaSlice<f32> = compute.clone_htod(&vec![f32::from(rank.0 as u8 + 1); FLOATS])?;
    let mut reducer = rig.reducer(Options { rebuild: false, ..options() }, Instruments::of(&agent))?;
    let mut marks = agent.step_marks_by(DeviceTimes::of(&reducer, agent.recorder()));
    let mut average = Vec::new();
    for step in 0..STEPS {
        let context = marks.begin_step(Step(step));
        marks.enter(SpanKind::Backward);
        reducer.begin_step(context, Share::even(size))?;
        for id in (0..PARAMETERS).rev() {
            fake_gpu::spin(backward(rank), &compute);
            reducer.mark_ready(ParamId(id), gradient.as_view())?;
        }
        let reduced = reducer.finish_step()?;
        marks.enter(SpanKind::Optimizer);
        average = compute.clone_dtoh(&reduced.gradient(ParamId(0)).context("every rank has a gradient")?)?;
        fake_gpu::spin(OPTIMIZER, &compute);
        marks.end_step(1);
    }
    drop(reducer);
    agent.finish(Ok(()));
    Ok(average)
}

fn recorded(collector: &Collector, size: u32) -> Vec<Recorded> {
    let mut all: Vec<Recorded> = (0..size).map(|_| Recorded::default()).collect();
    for batch in collector.batches.try_iter() {
        assert!(batch.drops.is_empty(), "nothing is lost: {:?}", batch.drops);
        let of_rank = &mut all[batch.rank.0 as usize];
        of_rank.devices.extend(batch.notes.into_iter().filter_map(|note| match note {
            Note::Device(sample) => Some(sample),
            Note::Hello(_) | Note::Layout(_) | Note::Bye(_) | Note::Burst(_) | Note::Host(_) => None,
        }));
        for event in batch.events {
            match event {
                Event::Bucket(record) => of_rank.buckets.push(record),
                Event::Span(span) => of_rank.spans.push(span),
                Event::Step(step) => of_rank.steps.push(step),
                Event::Started(_) => {}
            }
        }
    }
    all
}

fn assert_near(found: i64, expected: i64, what: &str) {
    assert!((found - expected).abs() <= ROUNDING, "{what}: {found} instead of {expected}");
}

/// What a bucket takes on the stand-in. Behind the gradients of the last one is a float more.
fn transfer(bucket: i64, ranks_per_node: Option<u32>) -> i64 {
    let collective = |floats: i64| 20_000 + 4 * floats / 5;
    let floats = FLOATS as i64 + i64::from(bucket + 1 == i64::from(PARAMETERS));
    let Some(ranks) = ranks_per_node.map(i64::from) else { return collective(floats) };
    // Shards have a multiple of four floats.
    let shard = (floats + 4 * ranks - 1) / (4 * ranks) * 4;
    let (within, across) = (collective(shard * ranks), collective(shard));
    within + across + within
}

/// What each rank's step must be, from its backward kernels' lengths: (ready, start, end) of each bucket, and the end
/// of the wait, all since the first kernel began. By way of nodes too, a bucket ends everywhere so long after the last
/// rank of all has begun it.
fn by_hand(kernels: &[i64], ranks_per_node: Option<u32>) -> Vec<(Vec<[i64; 3]>, i64)> {
    let ready = |kernel: i64, bucket: i64| (bucket + 1) * (kernel + SCALE);
    let mut ends = Vec::new();
    let mut free = i64::MIN;
    for bucket in 0..i64::from(PARAMETERS) {
        let last = kernels.iter().map(|&kernel| ready(kernel, bucket)).max().unwrap_or(0);
        free = last.max(free) + transfer(bucket, ranks_per_node);
        ends.push(free);
    }
    let of = |&kernel: &i64| {
        let mut free = i64::MIN;
        let mut bucket = |(bucket, &end): (i64, &i64)| {
            let start = ready(kernel, bucket).max(std::mem::replace(&mut free, end));
            [ready(kernel, bucket), start, end]
        };
        let buckets: Vec<[i64; 3]> = (0..).zip(&ends).map(&mut bucket).collect();
        (buckets, ends[ends.len() - 1])
    };
    kernels.iter().map(of).collect()
}

fn check_times(kernels: &[u64], ranks_per_node: Option<u32>) -> anyhow::Result<()> {
    let size = kernels.len() as u32;
    let collector = Collector::start()?;
    let averages = ranks(size, Transport::Nccl, Duration::from_secs(20), |mut rig| {
        rig.cuda.ranks_per_node = ranks_per_node;
        train(rig, &collector.address, size, |rank| kernels[rank.0 as usize])
    })?;
    let mean = (1..=size).map(|rank| rank as f32 / size as f32).sum::<f32>();
    for average in averages {
        ensure!(
            average.len() == FLOATS && average.iter().all(|&value| (value - mean).abs() < 1e-6),
            "{mean}"
        );
    }
    let signed: Vec<i64> = kernels.iter().map(|&kernel| kernel.cast_signed()).collect();
    let expected = by_hand(&signed, ranks_per_node);
    for (rank, (recorded, (buckets, wait_end))) in
        recorded(&collector, size).iter().zip(&expected).enumerate()
    {
        ensure!(recorded.buckets.len() == STEPS as usize * buckets.len(), "rank {rank} lost buckets");
        ensure!(recorded.steps.len() == STEPS as usize, "rank {rank} lost steps");
        let device =
            recorded.devices.first().with_context(|| format!("rank {rank} told nothing of its device"))?;
        let bus = if rank % 2 == 0 { "0000:01:00.0" } else { "0000:02:00.0" };
        ensure!(device.device == format!("Fake GPU at {bus}"), "{device:?}");
        let of_step = |step| recorded.buckets.iter().filter(move |record| record.step == Step(step));
        // The first step: after it the ranks begin apart, by as much as the copy that ends it makes them.
        let first = of_step(0).next().context("the first bucket")?;
        let begin = first.ready.0 - buckets[0][0];
        for (record, &[ready, start, end]) in of_step(0).zip(buckets) {
            let what = |time| format!("rank {rank}, {}: {time}", record.bucket);
            assert_near(record.ready.0 - begin, ready, &what("ready"));
            assert_near(record.start.0 - begin, start, &what("start"));
            assert_near(record.end.0 - begin, end, &what("end"));
            assert_eq!(record.source, Source::DeviceEvent);
            assert!(record.ready <= record.launch && record.launch <= record.start);
        }
        let span = |kind| {
            let mut spans =
                recorded.spans.iter().filter(move |span| span.step == Step(0) && span.kind == kind);
            spans.next().with_context(|| format!("rank {rank} has no {kind:?}"))
        };
        let blocked = span(SpanKind::Blocked)?;
        assert_near(blocked.begin.0 - begin, buckets[2][0], "the wait begins behind the last gradient");
        assert_near(blocked.end.0 - begin, *wait_end, "it ends with the last collective");
        let optimizer = span(SpanKind::Optimizer)?;
        // In virtual time the host has waited for the tail, which it then looked at: some microseconds.
        let after = optimizer.begin.0 - begin - *wait_end;
        assert!((0..=10_000).contains(&after), "the optimizer begins {after} ns after the wait");
        // One megabyte is copied out in 5 us and a nanosecond for each ten bytes; a call of the host lies between.
        let copy = 5_000 + 100_000;
        let took = optimizer.end.0 - optimizer.begin.0 - copy - OPTIMIZER.cast_signed();
        assert!((0..=10_000).contains(&took), "the optimizer took {took} ns more than its kernel");
    }
    Ok(())
}

#[test]
fn two_ranks_have_the_times_that_were_worked_out_by_hand() -> anyhow::Result<()> {
    // Rank 1 computes longer: its buckets come 200, 400 and 600 us after those of rank 0.
    let [fast, slow] = [300_000, 500_000];
    let [(of_fast, _), (of_slow, end)] = &by_hand(&[fast, slow], None)[..] else { unreachable!("two ranks") };
    assert_eq!(of_fast[1], [604_000, 722_000, 1_224_000], "starts when bucket 0 is done, waits for rank 1");
    assert_eq!((of_slow[1], *end), ([1_004_000, 1_004_000, 1_224_000], 1_726_000));
    check_times(&[fast.cast_unsigned(), slow.cast_unsigned()], None)
}

#[test]
fn four_ranks_too_when_transfers_stick_out_from_behind_the_backward_pass() -> anyhow::Result<()> {
    // 100 us of backward between buckets hide less than half of 220 us of transfer.
    check_times(&[100_000, 90_000, 110_000, 95_000], None)
}

#[test]
fn a_bucket_that_goes_by_way_of_nodes_is_one_collective_of_the_records() -> anyhow::Result<()> {
    // A megabyte in the node, half of it across nodes, a megabyte in the node. The last rank comes 200 us after the first.
    let kernels = [300_000, 500_000, 400_000, 350_000];
    let expected = by_hand(&kernels, Some(2));
    assert_eq!(expected[0].0[0], [302_000, 302_000, 502_000 + 220_000 + 120_000 + 220_000]);
    assert_eq!(expected[3].0[1], [704_000, 1_062_000, 1_062_000 + 560_000]);
    check_times(&kernels.map(i64::cast_unsigned), Some(2))
}

#[test]
fn results_have_the_same_bits_as_on_the_host() -> anyhow::Result<()> {
    for transport in [Transport::Nccl, Transport::Staged] {
        let value = |rank: u32, id: u32, index: usize| (index as f32 + 0.1) / (rank + 3) as f32 - id as f32;
        let values = |rank: u32, id: u32| (0..FLOATS).map(|index| value(rank, id, index)).collect::<Vec<_>>();
        let on_device = ranks(2, transport, Duration::from_secs(20), |rig| {
            let rank = rig.control.rank().0;
            let compute = rig.cuda.compute.clone();
            let options = Options { unused: UnusedParameters::Find, ..options() };
            let mut reducer = rig.reducer(options, Instruments::none())?;
            let context = agent::StepContext { step: Step(0), shadow: false };
            // Two micro-batches, the second without one parameter, and one that nobody uses at all.
            reducer.begin_accumulated_step(context, Share::even(4), 2)?;
            for id in [1, 0] {
                reducer.mark_ready(ParamId(id), compute.clone_htod(&values(rank, id))?.as_view())?;
            }
            reducer.next_micro_batch(Share::even(4))?;
            reducer.mark_ready(ParamId(1), compute.clone_htod(&values(rank + 7, 1))?.as_view())?;
            let reduced = reducer.finish_step()?;
            let found =
                reduced.gradients().map(|(_, gradient)| gradient.map(|view| compute.clone_dtoh(&view)));
            Ok(found.map(Option::transpose).collect::<Result<Vec<_>, _>>()?)
        })?;
        let on_host = std::thread::scope(|scope| {
            let start = |control: local::Local| {
                scope.spawn(move || -> Result<Vec<Option<Vec<f32>>>, ReduceError> {
                    let rank = reducer::Communicator::rank(&control).0;
                    let parameters =
                        (0..PARAMETERS).map(|id| Parameter::new(format!("p{id}"), [FLOATS])).collect();
                    let options = Options { unused: UnusedParameters::Find, ..options() };
                    let mut reducer =
                        Reducer::new(parameters, Box::new(control), options, Instruments::none())?;
                    let context = agent::StepContext { step: Step(0), shadow: false };
                    reducer.begin_accumulated_step(context, Share::even(4), 2)?;
                    for id in [1, 0] {
                        reducer.mark_ready(ParamId(id), &values(rank, id))?;
                    }
                    reducer.next_micro_batch(Share::even(4))?;
                    reducer.mark_ready(ParamId(1), &values(rank + 7, 1))?;
                    let reduced = reducer.finish_step()?;
                    Ok(reduced.gradients().map(|(_, gradient)| gradient.map(<[f32]>::to_vec)).collect())
                })
            };
            let threads: Vec<_> = local::world(2, Duration::from_secs(20)).into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect::<Vec<_>>()
        });
        for (device, host) in on_device.into_iter().zip(on_host) {
            let host = host?;
            ensure!(device[2].is_none() && host[2].is_none(), "nobody used the third parameter");
            ensure!(device == host, "{transport:?} differs from the host");
        }
    }
    Ok(())
}

#[test]
fn a_rank_that_never_arrives_is_named_and_the_device_is_let_go() -> anyhow::Result<()> {
    let (going, gone) = channel::<()>();
    let (going, gone) = (Mutex::new(Some(going)), Mutex::new(gone));
    let errors = ranks(2, Transport::Nccl, Duration::from_millis(300), |rig| {
        if rig.control.rank() == Rank(0) {
            // Let go of however this ends.
            let _going = going.lock().expect("nobody panicked").take();
            return step_until_error(rig, |_| {});
        }
        // Takes two steps, then nothing until rank 0 has given up.
        step_until_error(rig, |step| {
            if step == 2 {
                let _gone = gone.lock().expect("nobody panicked").recv();
            }
        })
    })?;
    let ReduceError::Comm(CommError::TimedOut { absent, .. }) = &errors[0] else {
        anyhow::bail!("rank 0 says: {}", errors[0])
    };
    ensure!(absent.len() == 1 && absent[0].rank == Rank(1), "{}", errors[0]);
    ensure!(errors[0].to_string().contains("rank 1 did not arrive"), "{}", errors[0]);
    ensure!(errors[1] == errors[0], "rank 1 says: {}", errors[1]);
    Ok(())
}

#[test]
fn an_error_that_nccl_finds_by_itself_ends_the_step_on_all_ranks() -> anyhow::Result<()> {
    let errors = ranks(2, Transport::Nccl, Duration::from_secs(20), |rig| {
        let rank = rig.control.rank();
        step_until_error(rig, |step| {
            if step == 2 && rank == Rank(0) {
                // ncclRemoteError
                fake_gpu::fail_newest_communicator(0, 6);
            }
        })
    })?;
    let said = "NCCL returned 6 (remote process exited or there was a network error)";
    ensure!(errors[0].to_string().contains(said), "rank 0 says: {}", errors[0]);
    ensure!(
        matches!(&errors[1], ReduceError::Comm(CommError::RankFailed { rank: Rank(0), reason }) if reason.contains(said)),
        "rank 1 says: {}",
        errors[1]
    );
    Ok(())
}

#[test]
fn a_library_that_is_no_nccl_is_an_error_on_all_ranks() -> anyhow::Result<()> {
    let errors = ranks(2, Transport::Nccl, Duration::from_secs(20), |mut rig| {
        if rig.control.rank() == Rank(1) {
            rig.cuda.nccl = Some("/nowhere/libnccl.so.2".into());
        }
        Ok(rig.reducer(options(), Instruments::none()).err().context("it works")?.to_string())
    })?;
    ensure!(
        errors[1].contains("opening NCCL") && errors[1].contains("/nowhere/libnccl.so.2"),
        "{}",
        errors[1]
    );
    ensure!(errors[0].contains("rank 1 gave up: opening NCCL"), "{}", errors[0]);
    Ok(())
}
