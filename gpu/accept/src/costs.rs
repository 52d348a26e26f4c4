//! The cost of observation: per call, and of the events of a step.

use std::time::Instant;

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
const PAIRS: usize = 9;
/// The largest cost of the events of a step.
const MOST: f64 = 0.001;

/// Measures `BATCHES` batches of `BATCH` calls and returns the mean nanoseconds per call of each batch. `settle` runs
/// between batches and is not measured.
fn each(
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
pub fn of_events(device: &Device) -> anyhow::Result<Outcome> {
    device.bind()?;
    let stream = device.stream()?;
    let events = events(device, BATCH)?;
    let last = || Ok(events[BATCH - 1].wait()?);
    let mut record = each(|at| Ok(events[at].record(&stream)?), last)?;
    let mut query = each(|at| Ok(events[at].is_done().map(drop)?), last)?;
    let mut read = each(|at| Ok(events[at].nanos_since(&events[0]).map(drop)?), last)?;
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
pub fn of_the_clock(device: &Device) -> anyhow::Result<Outcome> {
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

/// Compares the time of steps with and without events, in pairs. The events are recorded, polled and read, as the
/// reducer does, one step later. Nothing else of Paceline runs.
pub fn of_events_in_a_step(device: &Device, fake: bool) -> anyhow::Result<Outcome> {
    device.bind()?;
    let (truth, stream) = (Truth::load()?, device.stream()?);
    let sets: [Vec<Event>; 2] = [events(device, EVENTS)?, events(device, EVENTS)?];
    let step = |events: &[Event]| -> anyhow::Result<()> {
        let mut events = events.chunks(EVENTS / KERNELS);
        for _ in 0..KERNELS {
            truth.spin(KERNEL_NANOS, &stream)?;
            events.next().unwrap_or_default().iter().try_for_each(|event| event.record(&stream))?;
        }
        Ok(())
    };
    // Warms up both, and gives every event a first time.
    sets.iter().try_for_each(|events| step(events))?;
    let seconds = |is_observed: bool| -> anyhow::Result<f64> {
        stream.synchronize()?;
        let begin = Instant::now();
        for number in 0..STEPS {
            let (now, before) = (&sets[number % 2], &sets[(number + 1) % 2]);
            step(if is_observed { now } else { &[] })?;
            // A job waits for its previous step, for instance to print a loss.
            if is_observed {
                while !before[EVENTS - 1].is_done()? {
                    std::hint::spin_loop();
                }
                for event in before {
                    event.nanos_since(&before[0])?;
                }
            }
        }
        stream.synchronize()?;
        Ok(begin.elapsed().as_secs_f64() / STEPS as f64)
    };
    let mut pairs = Vec::with_capacity(PAIRS);
    for pair in 0..PAIRS {
        let first = seconds(pair % 2 == 0)?;
        let second = seconds(pair % 2 == 1)?;
        pairs.push(if pair % 2 == 0 { (first, second) } else { (second, first) });
    }
    let mut costs: Vec<f64> = pairs.iter().map(|(on, off)| on / off - 1.0).collect();
    let middle = median(&mut costs);
    Ok(Outcome {
        // The fake GPU has virtual time, and its calls take longer than its kernels.
        pass: fake || middle <= MOST,
        line: format!(
            "{EVENTS} events take {:+.3} % of a step of {KERNELS} ms ({:+.3} to {:+.3} in {PAIRS} pairs)",
            middle * 100.0,
            costs[0] * 100.0,
            costs[PAIRS - 1] * 100.0
        ),
        raw: json!({ "step_seconds_on_off": pairs }),
    })
}

fn events(device: &Device, count: usize) -> anyhow::Result<Vec<Event>> {
    Ok((0..count).map(|_| device.event()).collect::<Result<_, _>>()?)
}
