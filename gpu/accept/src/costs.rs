//! The cost of observation for the host, per call.

use std::time::Instant;

use gpu::device::{Device, Event};
use serde_json::json;

use crate::report::Outcome;
use crate::truth::median;

/// The number of calls in a batch. A stream accepts this many without making the host wait.
const BATCH: usize = 256;
const BATCHES: usize = 100;
const BRACKETS: usize = 500;
/// The largest useful width of a bracket. A wider bracket says little about the clock (`reducer::cuda::clock`).
const WIDEST_NANOS: f64 = 100_000.0;

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
    let events: Vec<Event> = (0..BATCH).map(|_| device.event()).collect::<Result<_, _>>()?;
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
