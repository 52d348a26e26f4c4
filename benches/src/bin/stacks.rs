//! Measures for how long a sample of native stacks interrupts a thread: a thread reads the clock without a pause, and the gaps
//! between its readings are longer while it is sampled.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use background::Stop;
use clap::Parser;
use serde_json::json;
use stacks::Window;
use testkit::results::Results;

/// Measures for how long a sample of native stacks interrupts a thread
#[derive(Parser)]
struct Options {
    /// How long to sample, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The number of frames around the sampled loop
    #[arg(long, default_value_t = 40)]
    depth: u32,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let mut results = Results::begin("stacks");
    let length = Duration::from_secs(options.seconds);
    println!(
        "gaps between two readings of the clock, by length: without samples, and with 25 samples per second"
    );
    let [plain, sampled] = [false, true].map(|is_sampled| gaps(length, options.depth, is_sampled));
    let (plain, sampled) = (plain?, sampled?);
    for (at, from) in BOUNDS.into_iter().enumerate() {
        println!("from {from:>7} ns: {:>6} {:>6}", plain[at], sampled[at]);
    }
    results.add(
        json!({ "what": "gaps", "depth": options.depth, "samples": options.seconds * 25, "from_ns": BOUNDS,
        "without": plain, "with": sampled }),
    );
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// The shortest gaps that are counted together, in nanoseconds.
const BOUNDS: [u64; 9] = [2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];

/// Counts the gaps between two readings of the clock by their length, as [`BOUNDS`] says.
fn gaps(length: Duration, depth: u32, is_sampled: bool) -> anyhow::Result<[u64; BOUNDS.len()]> {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| deep(depth, &end));
        if is_sampled {
            stacks::native::sample(std::process::id(), &Window::new(length, &Stop::default()))
                .map_err(|reason| anyhow!(reason))?;
        } else {
            std::thread::sleep(length);
        }
        end.store(true, Ordering::Relaxed);
        reader.join().ok().context("the reader failed")
    })
}

/// Calls itself as often as `depth` says, and then reads the clock until `end`.
#[inline(never)]
fn deep(depth: u32, end: &AtomicBool) -> [u64; BOUNDS.len()] {
    if depth > 0 { std::hint::black_box(deep(depth - 1, end)) } else { read(end) }
}

fn read(end: &AtomicBool) -> [u64; BOUNDS.len()] {
    let mut counts = [0; BOUNDS.len()];
    let mut last = Instant::now();
    while !end.load(Ordering::Relaxed) {
        let now = Instant::now();
        let gap = (now - last).as_nanos() as u64;
        if let Some(at) = BOUNDS.iter().rposition(|from| gap >= *from) {
            counts[at] += 1;
        }
        last = now;
    }
    counts
}
