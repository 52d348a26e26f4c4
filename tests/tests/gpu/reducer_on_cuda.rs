//! Tests of the reducer with CUDA and NCCL on the fake GPU: gradients, event times that were computed by hand, and
//! failures of a rank or of NCCL. These figures are not those of a GPU.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use agent::{Agent, Config, Job};
use anyhow::{Context as _, ensure};
use cudarc::driver::CudaSlice;
use reducer::cuda::{DeviceTimes, Transport};
use reducer::{
    CommError, Instruments, Options, ParamId, Parameter, ReduceError, Reducer, Share, UnusedParameters, local,
};
use testkit::collector::Collector;
use testkit::cuda_ranks::{FLOATS, PARAMETERS, Rig, options, ranks, step_until_error};
use testkit::fake_gpu;
use wire::batch::{Instrumentation, Note};
use wire::device::DeviceSample;
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, StepRecord};
use wire::ids::{Rank, RunId, Step};

/// The nanoseconds of the kernel that scales a gradient into its bucket.
const SCALE: i64 = 2_000;
/// The rounding error of two times. A 32-bit float of milliseconds is precise to 8 ns up to 131 ms.
const ROUNDING: i64 = 16;

fn observe(server: &str, rank: Rank, world_size: u32) -> Agent {
    Agent::start(Config {
        server: server.into(),
        token: None,
        run: RunId::new("on-a-fake-gpu").expect("the run id is valid"),
        rank,
        local_rank: rank.0,
        world_size,
        job: Job { name: "on-a-fake-gpu".into(), sample_unit: "rows".into(), parameters: 0 },
        instrumentation: Instrumentation::Reducer,
        labels: std::collections::BTreeMap::new(),
        spool_bytes: 1 << 20,
        leftovers: None,
        shadow_every: 0,
        overhead_budget: 1.0,
    })
}

/// The records of one rank.
#[derive(Default)]
struct Recorded {
    buckets: Vec<BucketRecord>,
    spans: Vec<Span>,
    steps: Vec<StepRecord>,
    devices: Vec<DeviceSample>,
}

const STEPS: u64 = 3;
const OPTIMIZER: u64 = 50_000;

/// Trains with three kernels of `backward` nanoseconds and one kernel of the optimizer per step. The host is ahead of
/// the device all the time.
fn train(rig: Rig, server: &str, size: u32, backward: impl Fn(Rank) -> u64) -> anyhow::Result<Vec<f32>> {
    let rank = rig.control.rank();
    let agent = observe(server, rank, size);
    let compute = rig.cuda.compute.clone();
    let gradient: CudaSlice<f32> = compute.clone_htod(&vec![f32::from(rank.0 as u8 + 1); FLOATS])?;
    let mut reducer = rig.reducer(Options { rebuild: false, ..options() }, Instruments::new(&agent))?;
    let mut marks = agent.step_marks_by(DeviceTimes::new(&reducer, agent.recorder()));
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
        average = compute.clone_dtoh(&reduced.gradient(ParamId(0)).context("a rank has no gradient")?)?;
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
        assert!(batch.drops.is_empty(), "records were lost: {:?}", batch.drops);
        let rank = &mut all[batch.rank.0 as usize];
        rank.devices.extend(batch.notes.into_iter().filter_map(|note| {
            let Note::Device(sample) = note else { return None };
            Some(sample)
        }));
        for event in batch.events {
            match event {
                Event::Bucket(record) => rank.buckets.push(record),
                Event::Span(span) => rank.spans.push(span),
                Event::Step(step) => rank.steps.push(step),
                Event::Started(_) => {}
            }
        }
    }
    all
}

fn assert_near(found: i64, expected: i64, what: &str) {
    assert!((found - expected).abs() <= ROUNDING, "{what}: found {found}, expected {expected}");
}

/// Returns the nanoseconds of a bucket's transfer on the fake GPU. The last bucket has one more float after its
/// gradients.
fn transfer(bucket: i64, ranks_per_node: Option<u32>) -> i64 {
    let collective = |floats: i64| 20_000 + 4 * floats / 5;
    let floats = FLOATS as i64 + i64::from(bucket + 1 == i64::from(PARAMETERS));
    let Some(ranks) = ranks_per_node.map(i64::from) else { return collective(floats) };
    // Shards have a multiple of four floats.
    let shard = (floats + 4 * ranks - 1) / (4 * ranks) * 4;
    let (node, place) = (collective(shard * ranks), collective(shard));
    node + place + node
}

/// Computes each rank's step from the lengths of its backward kernels: (ready, start, end) of each bucket and the end
/// of the wait, relative to the start of the first kernel. A bucket ends on all ranks one transfer after the last rank
/// has started it, with nodes too.
fn expected_steps(kernels: &[i64], ranks_per_node: Option<u32>) -> Vec<(Vec<[i64; 3]>, i64)> {
    let ready = |kernel: i64, bucket: i64| (bucket + 1) * (kernel + SCALE);
    let mut ends = Vec::new();
    let mut free = i64::MIN;
    for bucket in 0..i64::from(PARAMETERS) {
        let last = kernels.iter().map(|&kernel| ready(kernel, bucket)).max().unwrap_or(0);
        free = last.max(free) + transfer(bucket, ranks_per_node);
        ends.push(free);
    }
    let rank_step = |&kernel: &i64| {
        let mut free = i64::MIN;
        let mut bucket = |(bucket, &end): (i64, &i64)| {
            let start = ready(kernel, bucket).max(std::mem::replace(&mut free, end));
            [ready(kernel, bucket), start, end]
        };
        let buckets: Vec<[i64; 3]> = (0..).zip(&ends).map(&mut bucket).collect();
        (buckets, ends[ends.len() - 1])
    };
    kernels.iter().map(rank_step).collect()
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
    let expected = expected_steps(&signed, ranks_per_node);
    for (rank, (recorded, (buckets, wait_end))) in
        recorded(&collector, size).iter().zip(&expected).enumerate()
    {
        ensure!(recorded.buckets.len() == STEPS as usize * buckets.len(), "rank {rank} lost buckets");
        ensure!(recorded.steps.len() == STEPS as usize, "rank {rank} lost steps");
        let device =
            recorded.devices.first().with_context(|| format!("rank {rank} did not report its device"))?;
        let bus = if rank % 2 == 0 { "0000:01:00.0" } else { "0000:02:00.0" };
        ensure!(device.device == format!("Fake GPU at {bus}"), "{device:?}");
        let step_records = |step| recorded.buckets.iter().filter(move |record| record.step == Step(step));
        // Only the first step is compared. Afterwards the ranks begin their steps at different times, because of the
        // copy at the end of a step.
        let first = step_records(0).next().context("there is no first bucket")?;
        let begin = first.ready.0 - buckets[0][0];
        for (record, &[ready, start, end]) in step_records(0).zip(buckets) {
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
        assert_near(blocked.begin.0 - begin, buckets[2][0], "the begin of the wait");
        assert_near(blocked.end.0 - begin, *wait_end, "the end of the wait");
        let optimizer = span(SpanKind::Optimizer)?;
        // In virtual time, the host waited for the last collective and then looked at the result, some microseconds
        // later.
        let delay = optimizer.begin.0 - begin - *wait_end;
        assert!((0..=10_000).contains(&delay), "the optimizer begins {delay} ns after the wait");
        // Copying one megabyte to the host takes 5 us plus 1 ns per ten bytes. In between, the host makes one call.
        let copy = 5_000 + 100_000;
        let took = optimizer.end.0 - optimizer.begin.0 - copy - OPTIMIZER.cast_signed();
        assert!((0..=10_000).contains(&took), "the optimizer took {took} ns more than its kernel");
    }
    Ok(())
}

#[test]
fn two_ranks_have_the_times_computed_by_hand() -> anyhow::Result<()> {
    // Rank 1 computes longer, so its buckets are ready 200, 400 and 600 us after those of rank 0.
    let [fast, slow] = [300_000, 500_000];
    let [(of_fast, _), (of_slow, end)] = &expected_steps(&[fast, slow], None)[..] else {
        unreachable!("two ranks")
    };
    assert_eq!(of_fast[1], [604_000, 722_000, 1_224_000], "starts after bucket 0, waits for rank 1");
    assert_eq!((of_slow[1], *end), ([1_004_000, 1_004_000, 1_224_000], 1_726_000));
    check_times(&[fast.cast_unsigned(), slow.cast_unsigned()], None)
}

#[test]
fn four_ranks_with_exposed_transfers_have_the_times_computed_by_hand() -> anyhow::Result<()> {
    // The 100 us of backward between buckets hide less than half of the 220 us of a transfer.
    check_times(&[100_000, 90_000, 110_000, 95_000], None)
}

#[test]
fn a_bucket_reduced_over_nodes_is_recorded_as_one_collective() -> anyhow::Result<()> {
    // A megabyte within the node, half of it across nodes, a megabyte within the node. The last rank starts 200 us
    // after the first.
    let kernels = [300_000, 500_000, 400_000, 350_000];
    let expected = expected_steps(&kernels, Some(2));
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
            // Two micro-batches, the second without one parameter. A third parameter is never used.
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
            ensure!(device[2].is_none() && host[2].is_none(), "the unused third parameter has a gradient");
            ensure!(device == host, "{transport:?} differs from the host");
        }
    }
    Ok(())
}

#[test]
fn a_rank_that_never_arrives_is_named_and_the_device_is_released() -> anyhow::Result<()> {
    let (going, gone) = channel::<()>();
    let (going, gone) = (Mutex::new(Some(going)), Mutex::new(gone));
    let errors = ranks(2, Transport::Nccl, Duration::from_millis(300), |rig| {
        if rig.control.rank() == Rank(0) {
            // Dropped in any case, which lets rank 1 continue.
            let _going = going.lock().expect("no rank has panicked").take();
            return step_until_error(rig, |_| {});
        }
        // Runs two steps, then waits until rank 0 has given up.
        step_until_error(rig, |step| {
            if step == 2 {
                let _gone = gone.lock().expect("no rank has panicked").recv();
            }
        })
    })?;
    let ReduceError::Comm(CommError::TimedOut { absent, .. }) = &errors[0] else {
        anyhow::bail!("rank 0: {}", errors[0])
    };
    ensure!(absent.len() == 1 && absent[0].rank == Rank(1), "{}", errors[0]);
    ensure!(errors[0].to_string().contains("rank 1 did not arrive"), "{}", errors[0]);
    ensure!(errors[1] == errors[0], "rank 1: {}", errors[1]);
    Ok(())
}

#[test]
fn an_asynchronous_error_of_nccl_ends_the_step_on_all_ranks() -> anyhow::Result<()> {
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
    ensure!(errors[0].to_string().contains(said), "rank 0: {}", errors[0]);
    ensure!(
        matches!(&errors[1], ReduceError::Comm(CommError::RankFailed { rank: Rank(0), reason }) if reason.contains(said)),
        "rank 1: {}",
        errors[1]
    );
    Ok(())
}

#[test]
fn a_missing_nccl_library_is_an_error_on_all_ranks() -> anyhow::Result<()> {
    let errors = ranks(2, Transport::Nccl, Duration::from_secs(20), |mut rig| {
        if rig.control.rank() == Rank(1) {
            rig.cuda.nccl = Some("/nowhere/libnccl.so.2".into());
        }
        Ok(rig.reducer(options(), Instruments::none()).err().context("no error")?.to_string())
    })?;
    ensure!(
        errors[1].contains("opening NCCL") && errors[1].contains("/nowhere/libnccl.so.2"),
        "{}",
        errors[1]
    );
    ensure!(errors[0].contains("rank 1 gave up: opening NCCL"), "{}", errors[0]);
    Ok(())
}
