//! The cost of observation: per call, and of the events of a step.

use std::time::Instant;

use cudarc::driver::CudaContext;
use gpu::device::{Device, Event};
use serde_json::json;

use crate::report::Outcome;
use crate::truth::{Truth, median};

/// The number of calls in a batch. A stream accepts this many without making the host wait.
const BATCH: usize = 256;
const BATCHES: usize = 100;
const BRACKETS: usize = 500;
/// The largest useful width of a bracket. A wider bracket says little about the clock (`reducer::cuda::clock`).
const WIDEST_NANOS: f64 = 100_000.0;

/// The kernels of a step, each as long as `KERNEL_NANOS`.
const KERNELS: usize = 4;
const KERNEL_NANOS: u64 = 1_000_000;
/// The events of a step: each bucket is ready and ends, a step begins and ends, and so does its update.
const EVENTS: usize = 2 * KERNELS + 4;
const STEPS: usize = 200;
const ROUNDS: usize = 9;
/// The largest time that a timed event may take of its stream. At 2 us, a step with 12 of them costs 0.1 % from 24 ms on.
const MOST_NANOS: f64 = 2_000.0;

/// Measures `BATCHES` batches of `BATCH` calls and returns the mean nanoseconds per call of each batch. `settle` runs
/// between batches and is not measured.
fn batch_means(
    mut call: impl FnMut(usize) -> anyhow::Result<()>,
    settle: impl Fn() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<f64>> {
    let mut means = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let begin = Instant::now();
        (0..BATCH).try_for_each(&mut call)?;
        means.push(begin.elapsed().as_nanos() as f64 / BATCH as f64);
        settle()?;
    }
    Ok(means)
}

/// Measures the cost of recording a timed event, of asking whether it is done, and of reading the time between two
/// events.
pub fn event_costs(device: &Device) -> anyhow::Result<Outcome> {
    device.bind()?;
    let stream = device.stream()?;
    let events = events(device, BATCH)?;
    let last = || Ok(events[BATCH - 1].wait()?);
    let mut record = batch_means(|at| Ok(events[at].record(&stream)?), last)?;
    let mut query = batch_means(|at| Ok(events[at].is_done().map(drop)?), last)?;
    let mut read = batch_means(|at| Ok(events[at].nanos_since(&events[0]).map(drop)?), last)?;
    let raw = json!({ "record_ns": record, "query_ns": query, "elapsed_ns": read });
    let line = format!(
        "an event costs {:.0} ns to record, {:.0} ns to query, {:.0} ns to read",
        median(&mut record),
        median(&mut query),
        median(&mut read)
    );
    Ok(Outcome { pass: true, line, raw })
}

/// Measures how precisely the device's clock can be compared with the host's.
pub fn clock_width(device: &Device) -> anyhow::Result<Outcome> {
    device.bind()?;
    let (stream, event) = (device.urgent_stream()?, device.event()?);
    let mut widths = Vec::with_capacity(BRACKETS);
    for _ in 0..BRACKETS {
        let before = agent::clock::now();
        event.record(&stream)?;
        while !event.is_done()? {}
        widths.push((agent::clock::now().0 - before.0) as f64);
    }
    let raw = json!({ "bracket_ns": widths });
    let middle = median(&mut widths);
    let line = format!(
        "an event is within {:.1} us of the host's clock in the median, {:.1} us at best",
        middle / 1e3,
        widths[0] / 1e3
    );
    Ok(Outcome { pass: middle <= WIDEST_NANOS, line, raw })
}

/// Compares the time of steps with timed events, with events that only order streams, and without events, round after
/// round. Timed events are polled and read one step later, as the reducer does. Nothing else of Paceline runs.
pub fn event_costs_in_a_step(device: &Device, fake: bool) -> anyhow::Result<Outcome> {
    device.bind()?;
    let (truth, stream) = (Truth::load()?, device.stream()?);
    let sets: [Vec<Event>; 2] = [events(device, EVENTS)?, events(device, EVENTS)?];
    // An event has no time before it is recorded.
    sets.iter().flatten().try_for_each(|event| event.record(&stream))?;
    let context = CudaContext::new(0)?;
    let untimed = (0..EVENTS).map(|_| context.new_event(None)).collect::<Result<Vec<_>, _>>()?;
    // Runs the kernels of a step, and records the events of `mark` between them.
    let step = |mark: &dyn Fn(usize) -> anyhow::Result<()>| -> anyhow::Result<()> {
        for kernel in 0..KERNELS {
            truth.spin(KERNEL_NANOS, &stream)?;
            (0..EVENTS / KERNELS).try_for_each(|event| mark(kernel * (EVENTS / KERNELS) + event))?;
        }
        Ok(())
    };
    let with_timed = |number: usize| -> anyhow::Result<()> {
        let (now, before) = (&sets[number % 2], &sets[(number + 1) % 2]);
        step(&|event| Ok(now[event].record(&stream)?))?;
        while !before[EVENTS - 1].is_done()? {
            std::hint::spin_loop();
        }
        before.iter().try_for_each(|event| Ok(event.nanos_since(&before[0]).map(drop)?))
    };
    let with_untimed = |_: usize| step(&|event| Ok(untimed[event].record(&stream)?));
    let with_none = |_: usize| step(&|_| Ok(()));
    let modes: [&dyn Fn(usize) -> anyhow::Result<()>; 3] = [&with_timed, &with_untimed, &with_none];
    let seconds = |mode: usize| -> anyhow::Result<f64> {
        stream.synchronize()?;
        let begin = Instant::now();
        (0..STEPS).try_for_each(modes[mode])?;
        stream.synchronize()?;
        Ok(begin.elapsed().as_secs_f64() / STEPS as f64)
    };
    // The first round warms up, and is not counted.
    for mode in 0..modes.len() {
        seconds(mode)?;
    }
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let mut times = [0.0; 3];
        for turn in 0..modes.len() {
            let mode = (round + turn) % modes.len();
            times[mode] = seconds(mode)?;
        }
        rounds.push(times);
    }
    let middle_of = |mode: usize| median(&mut rounds.iter().map(|times| times[mode]).collect::<Vec<f64>>());
    let [timed, untimed, none] = [0, 1, 2].map(middle_of);
    let event_nanos = |seconds: f64| (seconds - none) * 1e9 / EVENTS as f64;
    Ok(Outcome {
        // The fake GPU has virtual time, and its calls take longer than its kernels.
        pass: fake || event_nanos(timed) <= MOST_NANOS,
        line: format!(
            "a timed event takes {:.0} ns of its stream, one that only orders streams {:.0} ns; {EVENTS} timed events are \
             {:.3} % of a step of {KERNELS} ms",
            event_nanos(timed),
            event_nanos(untimed),
            (timed / none - 1.0) * 100.0
        ),
        raw: json!({ "step_seconds_timed_untimed_none": rounds }),
    })
}

fn events(device: &Device, count: usize) -> anyhow::Result<Vec<Event>> {
    Ok((0..count).map(|_| device.event()).collect::<Result<_, _>>()?)
}
