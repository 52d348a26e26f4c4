//! Checks of the reducer on the device. Kernels of known length stand for the backward pass.

use std::time::{Duration, Instant};

use agent::{Agent, Config, Job, StepContext};
use anyhow::{Context as _, ensure};
use gpu::cupti::burst::{Burst, Recorded};
use gpu::cupti::records::Record;
use gpu::device::{CudaSlice, Device};
use reducer::bucketing::Caps;
use reducer::cuda::{Cuda, DeviceTimes, Transport};
use reducer::{Communicator as _, Instruments, Options, ParamId, Parameter, Reducer, Share, local};
use serde_json::{Value, json};
use testkit::collector::Collector;
use testkit::fake_gpu;
use timing::intervals::Intervals;
use wire::batch::Instrumentation;
use wire::burst::GAP_NANOS;
use wire::event::{Event, SpanKind};
use wire::ids::{Rank, RunId, Step};

use crate::report::Outcome;
use crate::truth::{Truth, median};

/// The number of elements of a parameter, and therefore of a bucket.
const FLOATS: usize = 1 << 20;
/// The number of elements for the overlap check. It makes collectives long compared with the difference between two
/// clocks.
const MANY_FLOATS: usize = 1 << 24;
/// The nanoseconds of backward before each bucket, for the overlap check.
const LONG_NANOS: u64 = 20_000_000;
const PARAMETERS: u32 = 4;
/// The number of steps of a training, the first sixth of which is a warm-up.
const STEPS: u64 = 60;
/// The number of steps of a training whose time per step is compared.
const TIMED_STEPS: u64 = 300;
/// The largest relative difference between a kernel's measured and known length. A launch takes about a percent.
const MAX_RELATIVE_ERROR: f64 = 0.02;
const PAIRS: usize = 7;

/// The configuration of a job.
#[derive(Clone)]
pub struct Setting {
    /// The transport between ranks.
    pub transport: Transport,
    /// The number of ranks. All use the first device.
    pub ranks: u32,
    /// The number of floats of a bucket.
    pub floats: usize,
    /// The nanoseconds of backward before each bucket.
    pub kernel: u64,
    /// The number of steps.
    pub steps: u64,
    /// Whether the job runs on the fake GPU, which has virtual time.
    pub fake: bool,
}

impl Setting {
    /// Returns the setting of one rank whose gradients are reduced in host memory.
    pub fn staged(fake: bool) -> Self {
        Self { transport: Transport::Staged, ranks: 1, floats: FLOATS, kernel: 1_000_000, steps: STEPS, fake }
    }
}

/// A finished training run.
struct Trained {
    /// The seconds per step on rank 0, without the first steps.
    seconds: f64,
    /// The kernels of every rank. CUPTI may forget the names of kernels that are unloaded.
    _kernels: Vec<(Truth, Device)>,
}

/// Runs a training with this setting.
fn train(setting: &Setting, server: Option<&str>) -> anyhow::Result<Trained> {
    let rank = |control: local::Local| -> anyhow::Result<(f64, (Truth, Device))> {
        let (rank, device) = (control.rank(), Device::open(0)?);
        device.keep_memory()?;
        let (truth, compute) = (Truth::load()?, device.stream()?);
        let gradient: CudaSlice<f32> = compute.clone_htod(&vec![1.0 + rank.0 as f32; setting.floats])?;
        let agent = server.map_or_else(Agent::disabled, |server| observe(server, rank, setting.ranks));
        let mut cuda = Cuda::new(device.clone(), compute.clone(), setting.transport);
        if setting.fake {
            (cuda.nccl, cuda.now) = (Some(fake_gpu::path()), fake_gpu::now);
        }
        let parameters =
            (0..PARAMETERS).map(|id| Parameter::new(format!("p{id}"), [setting.floats])).collect();
        let options = Options { caps: Caps { first_bytes: 1, other_bytes: 1 }, ..Options::default() };
        let mut reducer =
            Reducer::on_device(parameters, Box::new(control), cuda, options, Instruments::new(&agent))?;
        let mut marks = agent.step_marks_by(DeviceTimes::new(&reducer, agent.recorder()));
        let mut warm = Instant::now();
        for step in 0..setting.steps {
            if step == setting.steps / 6 {
                compute.synchronize()?;
                warm = Instant::now();
            }
            let context: StepContext = marks.begin_step(Step(step));
            marks.enter(SpanKind::Backward);
            reducer.begin_step(context, Share::even(setting.ranks))?;
            for id in (0..PARAMETERS).rev() {
                truth.spin(setting.kernel, &compute)?;
                reducer.mark_ready(ParamId(id), gradient.as_view())?;
            }
            reducer.finish_step()?;
            marks.enter(SpanKind::Optimizer);
            truth.spin(setting.kernel / 4, &compute)?;
            marks.end_step(1);
        }
        compute.synchronize()?;
        let seconds = warm.elapsed().as_secs_f64() / (setting.steps - setting.steps / 6) as f64;
        // One more step, to check its result.
        reducer.begin_step(
            StepContext { step: Step(setting.steps), shadow: true },
            Share::even(setting.ranks),
        )?;
        for id in (0..PARAMETERS).rev() {
            reducer.mark_ready(ParamId(id), gradient.as_view())?;
        }
        let average = reducer.finish_step()?.gradient(ParamId(0)).context("parameter 0 has no gradient")?;
        let average = compute.clone_dtoh(&average)?;
        let expected = (1..=setting.ranks).sum::<u32>() as f32 / setting.ranks as f32;
        ensure!(average.iter().all(|&value| (value - expected).abs() < 1e-5), "the average is wrong");
        drop(reducer);
        agent.finish(Ok(()));
        Ok((seconds, (truth, device)))
    };
    std::thread::scope(|scope| {
        let rank = &rank;
        let world = local::world(setting.ranks, Duration::from_secs(60));
        let threads: Vec<_> = world.into_iter().map(|control| scope.spawn(move || rank(control))).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a rank panicked"))?)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let seconds = ended[0].0;
        Ok(Trained { seconds, _kernels: ended.into_iter().map(|(_, kernels)| kernels).collect() })
    })
}

fn observe(server: &str, rank: Rank, world_size: u32) -> Agent {
    Agent::start(Config {
        server: server.into(),
        token: None,
        run: RunId::new("accept").expect("the run id is valid"),
        rank,
        local_rank: rank.0,
        world_size,
        job: Job { name: "accept".into(), sample_unit: "steps".into(), parameters: 0 },
        instrumentation: Instrumentation::Reducer,
        labels: std::collections::BTreeMap::new(),
        spool_bytes: 16 << 20,
        leftovers: None,
        shadow_every: 0,
        overhead_budget: 1.0,
    })
}

/// Checks that averages are correct, that every bucket is recorded, and that the backward pass is as long as its
/// kernels.
pub fn is_recorded(setting: &Setting) -> anyhow::Result<Outcome> {
    let collector = Collector::start()?;
    let Trained { seconds, .. } = train(setting, Some(&collector.address))?;
    let events: Vec<Event> = collector.batches.try_iter().flat_map(|batch| batch.events).collect();
    let buckets = events.iter().filter(|event| matches!(event, Event::Bucket(_))).count() as u64;
    let expected = STEPS * u64::from(PARAMETERS) * u64::from(setting.ranks);
    let length = |kind: SpanKind| -> Vec<f64> {
        let lengths = events.iter().filter_map(move |event| match event {
            Event::Span(span) if span.kind == kind && span.step.0 > STEPS / 6 => {
                Some((span.end.0 - span.begin.0) as f64)
            }
            _ => None,
        });
        lengths.collect()
    };
    let (mut backward, mut blocked) = (length(SpanKind::Backward), length(SpanKind::Blocked));
    // The span of backward lasts until the optimizer begins. The waiting part has its own spans.
    let mut own: Vec<f64> = backward.iter().zip(&blocked).map(|(all, waits)| all - waits).collect();
    let raw = json!({
        "step_seconds": seconds, "backward_nanos": backward, "blocked_nanos": blocked, "records": events.len(),
        "buckets": events.iter().filter_map(times).collect::<Vec<Value>>(),
    });
    let truth = (setting.kernel * u64::from(PARAMETERS)) as f64;
    // The lower quartile: in other steps the device also waited for the host to launch a kernel.
    own.sort_by(f64::total_cmp);
    let error = own.get(own.len() / 4).copied().unwrap_or(0.0) / truth - 1.0;
    let alone = setting.ranks == 1;
    Ok(Outcome {
        // Ranks that share a device take turns. The pass is as long as its kernels only if the rank is alone.
        pass: buckets == expected && (!alone || error.abs() <= MAX_RELATIVE_ERROR),
        line: format!(
            "averages are correct; {buckets} of {expected} buckets recorded; backward {:.3} ms (fastest quarter {:+.2} % off \
             its kernels), blocked {:.3} ms of a step of {:.3} ms",
            median(&mut backward) / 1e6,
            error * 100.0,
            median(&mut blocked) / 1e6,
            seconds * 1e3
        ),
        raw,
    })
}

/// Compares two measurements of hidden communication. The first uses events and counts the backward pass, without its
/// wait, as busy. The second uses CUPTI's kernels and the short gaps between kernels that were launched in time.
pub fn overlap_is_that_of_cupti(setting: &Setting) -> anyhow::Result<Outcome> {
    // On an H100, a quarter of the collectives' time is hidden then. With shorter kernels, next to nothing is.
    let long = match setting.fake {
        true => setting.clone(),
        false => Setting { floats: MANY_FLOATS, kernel: LONG_NANOS, ..setting.clone() },
    };
    let collector = Collector::start()?;
    let Recorded { records, dropped, is_realtime, .. } = recorded(&long, &collector)?;
    ensure!(is_realtime, "CUPTI does not use the host's clock: another tool registered its own");
    let ahead = if setting.fake {
        fake_gpu::CUPTI_EPOCH
    } else {
        let anchor = agent::clock::anchor();
        anchor.unix.0 - anchor.mono.0
    };
    let kernels = records.iter().filter_map(|record| match record {
        Record::Kernel { times, .. } => {
            Some((times.start.cast_signed() - ahead, times.end.cast_signed() - ahead))
        }
        _ => None,
    });
    let kernels = Intervals::union(kernels);
    let busy = kernels.with_gaps(GAP_NANOS);
    let events: Vec<Event> = collector.batches.try_iter().flat_map(|batch| batch.events).collect();
    let spans = |wanted: SpanKind| {
        Intervals::union(events.iter().filter_map(move |event| match event {
            Event::Span(span) if span.kind == wanted => Some((span.begin.0, span.end.0)),
            _ => None,
        }))
    };
    let collectives = Intervals::union(events.iter().filter_map(|event| match event {
        Event::Bucket(record) => Some((record.start.0, record.end.0)),
        _ => None,
    }));
    let by_events = spans(SpanKind::Backward).subtract(&spans(SpanKind::Blocked));
    let all = collectives.total() as f64;
    let hidden = |compute: &Intervals| collectives.intersect(compute).total() as f64 / all;
    let (found, exact, strict) = (hidden(&by_events), hidden(&busy), hidden(&kernels));
    Ok(Outcome {
        pass: all > 0.0 && dropped == 0 && (found - exact).abs() <= 0.01,
        line: format!(
            "{:.2} % by events, {:.2} % by CUPTI's kernels with gaps up to {} us, {:.2} % without gaps",
            found * 100.0,
            exact * 100.0,
            GAP_NANOS / 1_000,
            strict * 100.0
        ),
        raw: json!({
            "by_events": found, "by_cupti": exact, "by_kernels_alone": strict, "records": records.len(),
            "dropped": dropped,
        }),
    })
}

/// Runs a training while CUPTI records.
fn recorded(setting: &Setting, collector: &Collector) -> anyhow::Result<Recorded> {
    let library = setting.fake.then(fake_gpu::path);
    let burst = Burst::start(library.as_deref())?;
    let _trained = train(setting, Some(&collector.address))?;
    Ok(burst.finish()?)
}

/// Checks that every kernel is attributed to the phase that launched it, backward or optimizer (CUPTI's external
/// correlation).
pub fn kernels_are_told_by_phases(setting: &Setting) -> anyhow::Result<Outcome> {
    let recorded = recorded(setting, &Collector::start()?)?;
    let phases = recorded.phases();
    let launched = |wanted: Option<SpanKind>| {
        let spins = recorded.records.iter().filter(|record| match record {
            Record::Kernel { name, correlation, .. } => {
                name.contains("spin") && phases.get(correlation).copied() == wanted
            }
            _ => false,
        });
        spins.count() as u64
    };
    let [backward, optimizer] = [SpanKind::Backward, SpanKind::Optimizer].map(|kind| launched(Some(kind)));
    let nowhere = launched(None);
    Ok(Outcome {
        pass: (backward, optimizer, nowhere) == (STEPS * u64::from(PARAMETERS), STEPS, 0),
        line: format!(
            "{backward} kernels were launched in backward, {optimizer} in the optimizer, {nowhere} in neither, in \
             {STEPS} steps"
        ),
        raw: json!({ "backward": backward, "optimizer": optimizer, "nowhere": nowhere }),
    })
}

fn times(event: &Event) -> Option<Value> {
    let Event::Bucket(record) = event else { return None };
    Some(json!([
        record.step.0,
        record.bucket.0,
        record.ready.0,
        record.launch.0,
        record.start.0,
        record.end.0
    ]))
}

/// Compares the step time with everything on (events, records, device samples, sending) and without, in pairs.
pub fn overhead(setting: &Setting) -> anyhow::Result<Outcome> {
    let steps = if setting.fake { STEPS } else { TIMED_STEPS };
    let setting = Setting { steps, ..setting.clone() };
    let collector = Collector::start()?;
    let mut pairs = Vec::with_capacity(PAIRS);
    for pair in 0..PAIRS {
        let observed = || Ok::<_, anyhow::Error>(train(&setting, Some(&collector.address))?.seconds);
        let plain = || Ok::<_, anyhow::Error>(train(&setting, None)?.seconds);
        let (observed, plain) = if pair % 2 == 0 {
            (observed()?, plain()?)
        } else {
            let plain = plain()?;
            (observed()?, plain)
        };
        pairs.push((observed, plain));
    }
    let mut ratios: Vec<f64> = pairs.iter().map(|(observed, plain)| observed / plain - 1.0).collect();
    let middle = median(&mut ratios);
    let mut plain: Vec<f64> = pairs.iter().map(|(_, plain)| *plain).collect();
    Ok(Outcome {
        pass: middle <= 0.005,
        line: format!(
            "a step of {:.3} ms takes {:+.3} % longer with everything on ({:+.3} to {:+.3} in {PAIRS} pairs)",
            median(&mut plain) * 1e3,
            middle * 100.0,
            ratios[0] * 100.0,
            ratios[PAIRS - 1] * 100.0
        ),
        raw: json!({ "step_seconds_on_off": pairs }),
    })
}
