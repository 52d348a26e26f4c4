//! The stacks of this process's Python threads and of the processes that it started, sampled when the server asks.
//!
//! The samples are read from memory. No thread is stopped, and the interpreter's lock is not taken, so a rank that hangs
//! in a call that holds it can be sampled as well. In return, a stack that changes while it is read is torn: most torn
//! stacks are noticed and dropped.

mod descendants;
mod process;

use std::collections::HashSet;
use std::sync::LazyLock;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agent::Notes;
use background::{Background, Stop};
use stacks::TrainingThread;
use stacks::profile::{self, Sampled};
use wire::stacks::Profile;

/// The time between two searches for new processes. A search reads a file per process of the host.
const SEARCH_EVERY: Duration = Duration::from_millis(500);
/// The largest number of processes that are sampled. All workers of a data loader run the same code.
const MAX_PROCESSES: usize = 16;

/// The thread that trains. It counts as this process's main thread.
static TRAINING: LazyLock<TrainingThread> = LazyLock::new(TrainingThread::default);

/// Says that the calling thread is the one that trains. In Ray Train, it is not the main thread.
pub fn trains_here() {
    TRAINING.is_here();
}

/// Starts the thread that answers requests.
pub fn on_demand(notes: Notes) -> Background {
    stacks::on_demand(notes, sample)
}

/// Samples this process and those that it started.
///
/// # Errors
/// Returns the reason why this process has no stacks.
fn sample(length: Duration, stop: &Stop) -> Result<Profile, String> {
    let (own, until) = (std::process::id(), Instant::now() + length);
    let (mut known, mut samplers) = (HashSet::new(), Vec::new());
    while Instant::now() < until && !stop.is_asked() {
        for pid in descendants::with_descendants(own) {
            if samplers.len() < MAX_PROCESSES && known.insert(pid) && !descendants::compiles(pid) {
                samplers.extend(start(pid, until, stop).map(|sampler| (pid == own, sampler)));
            }
        }
        stop.wait(SEARCH_EVERY.min(until.saturating_duration_since(Instant::now())));
    }
    let mut sampled = Vec::new();
    for (is_own, sampler) in samplers {
        match sampler.join() {
            Ok(Ok(process)) => sampled.push((is_own, process)),
            Ok(Err(reason)) if is_own => return Err(reason),
            // Not a Python process, or one that has ended.
            Ok(Err(_)) => {}
            Err(_) if is_own => return Err("the sampler failed".into()),
            Err(_) => {}
        }
    }
    Ok(profile::of_rank(sampled))
}

fn start(pid: u32, until: Instant, stop: &Stop) -> Option<JoinHandle<Result<Sampled, String>>> {
    let stop = stop.clone();
    let sampler = thread::Builder::new().name("paceline-sample".into());
    // The main thread of a process has the process's number.
    let main = if pid == std::process::id() { TRAINING.number() } else { pid };
    sampler.spawn(move || process::sample((pid, main), until, &stop)).ok()
}
