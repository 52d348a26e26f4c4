//! Measures the cost of observation to NCCL's threads: `cargo xtask bench callbacks`.
//!
//! The benchmark calls the plugin's functions as NCCL does, by interface 5. Meanwhile the observer thread empties the
//! rings every 20 ms. The server does not exist, so the agent's spool takes the batches.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]
#![allow(unsafe_code, reason = "the benchmark calls the plugin as C does")]

#[path = "../../tests/kit/src/results.rs"]
mod results;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

use paceline_attach::hooks::nccl::{COLLECTIVE, GROUP, KERNEL_CHANNEL, KERNEL_CHANNEL_STOP, ncclProfiler_v5};
use results::Results;
use serde_json::json;

/// The number of collectives between two pauses. A collective of 8 channels has 17 entries, so the ring has room for
/// 512 collectives and not for 1,024.
const COLLECTIVES: usize = 512;
const CHANNELS: usize = 8;
/// The length of a pause: three passes of the observer thread.
const EMPTIED: Duration = Duration::from_millis(60);
const SAMPLES: usize = 200;

/// Descriptions of interface 5 in words of 8 bytes (tests/golden/nccl_profiler.json has the offsets).
struct Descriptions {
    group: [u64; 14],
    collective: [u64; 14],
    channel: [u64; 14],
}

impl Descriptions {
    fn new() -> Self {
        let [mut group, mut collective, mut channel] = [[0; 14]; 3];
        group[0] = GROUP;
        collective[0] = COLLECTIVE;
        collective[4] = c"AllReduce".as_ptr().addr() as u64;
        collective[7] = 1 << 20;
        collective[9] = c"ncclFloat32".as_ptr().addr() as u64;
        collective[10] = CHANNELS as u64;
        channel[0] = KERNEL_CHANNEL;
        Self { group, collective, channel }
    }
}

struct Plugin {
    context: *mut c_void,
    mask: c_int,
    descriptions: Descriptions,
}

impl Plugin {
    fn begin() -> Self {
        let (mut context, mut mask) = (ptr::null_mut(), 0);
        // SAFETY: both places are valid for writes, as when NCCL calls it.
        unsafe { (ncclProfiler_v5.init)(&raw mut context, 7, &raw mut mask, ptr::null(), 1, 2, 0, None) };
        Self { context, mask, descriptions: Descriptions::new() }
    }

    fn start(&self, description: &[u64; 14]) -> *mut c_void {
        let mut handle = ptr::null_mut();
        // SAFETY: the description is one of interface 5, and `handle` is valid for writes.
        unsafe { (ncclProfiler_v5.start_event)(self.context, &raw mut handle, description.as_ptr().cast()) };
        handle
    }

    /// Runs one collective in a group of its own, from its enqueueing to the end of its last channel: 4 + 3 x 8 calls.
    fn collective(&mut self, seq: u64) {
        self.descriptions.collective[3] = seq;
        let group = self.start(&self.descriptions.group);
        let collective = self.start(&self.descriptions.collective);
        for handle in [collective, group] {
            // SAFETY: the plugin wrote the handle.
            unsafe { (ncclProfiler_v5.stop_event)(handle) };
        }
        self.descriptions.channel[1] = collective.addr() as u64;
        for _ in 0..CHANNELS {
            let now = agent::clock::now().0 as u64;
            self.descriptions.channel[4] = now;
            let channel = self.start(&self.descriptions.channel);
            let arguments = [now + 100];
            // SAFETY: the plugin wrote the handle, and the arguments are those of this state.
            unsafe {
                (ncclProfiler_v5.record_event_state)(channel, KERNEL_CHANNEL_STOP, arguments.as_ptr().cast());
                (ncclProfiler_v5.stop_event)(channel);
            }
        }
    }
}

fn main() -> std::io::Result<()> {
    let variables = [
        ("PACELINE_SERVER", "http://127.0.0.1:9"),
        ("PACELINE_RUN_ID", "bench"),
        ("RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("PACELINE_SPOOL_BYTES", "16777216"),
        // A budget of 100 % observes every call in full, whatever it costs.
        ("PACELINE_OVERHEAD_BUDGET", "100"),
    ];
    for (name, value) in variables {
        // SAFETY: there is only one thread so far.
        unsafe { std::env::set_var(name, value) };
    }
    let mut results = Results::begin("callbacks");
    let mut plugin = Plugin::begin();
    assert_ne!(plugin.mask, 0, "the plugin observes nothing");
    let mut seq = 0;
    let mut samples: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            std::thread::sleep(EMPTIED);
            let begin = agent::clock::now();
            for _ in 0..COLLECTIVES {
                plugin.collective(seq);
                seq += 1;
            }
            (agent::clock::now() - begin) as f64 / COLLECTIVES as f64
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    let quantile = |share: f64| samples[(share * (samples.len() - 1) as f64).round() as usize];
    let calls = 4 + 3 * CHANNELS;
    let (p10, median, p99) = (quantile(0.1), quantile(0.5), quantile(0.99));
    println!(
        "a collective of {CHANNELS} channels ({calls} calls): median {median:.0} ns, p10 {p10:.0}, p99 {p99:.0}"
    );
    println!("a call: median {:.1} ns", median / calls as f64);
    results.add(json!({
        "what": "collective", "channels": CHANNELS, "calls": calls, "median_ns": median, "p10_ns": p10, "p99_ns": p99,
        "samples_ns_sorted": samples,
    }));
    println!("raw: {}", results.finish()?.display());
    Ok(())
}
