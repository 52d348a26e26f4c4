//! The stacks of this process's Python threads and of the processes that it started, sampled when the server asks, and while a
//! step lasts far longer than usual.
//!
//! The samples are read from memory. No thread is stopped, and the interpreter's lock is not taken, so a rank that hangs
//! in a call that holds it can be sampled as well. In return, a stack that changes while it is read is torn: most torn
//! stacks are noticed and dropped.

mod descendants;
mod process;

use std::collections::HashSet;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use agent::Notes;
use background::Background;
use stacks::profile::{self, Sampled};
use stacks::{TrainingThread, Window};
use wire::stacks::Profile;

use crate::marks;
use process::Reader;

/// The time between two searches for new processes. A search reads a file per process of the host.
const SEARCH_EVERY: Duration = Duration::from_millis(500);
/// The largest number of processes that are sampled. All workers of a data loader run the same code.
const MAX_PROCESSES: usize = 16;
/// How long a step is sampled before the processes that this one started are sampled as well. Finding them and reading where
/// their threads are takes some milliseconds each.
const OTHERS_AFTER: Duration = Duration::from_millis(300);

/// The thread that trains. It counts as this process's main thread.
static TRAINING: LazyLock<TrainingThread> = LazyLock::new(TrainingThread::default);

/// Says that the calling thread is the one that trains. In Ray Train, it is not the main thread.
pub fn trains_here() {
    TRAINING.is_here();
}

/// Starts the thread that answers requests.
pub fn answer_requests(notes: Notes) -> Background {
    stacks::answer_requests(notes, |window| sample(window, &mut HashSet::new()))
}

/// Starts the thread that samples long steps, for one rank of this process.
pub fn sample_long_steps(notes: Notes) -> Option<Background> {
    static IS_STARTED: AtomicBool = AtomicBool::new(false);
    let is_first = !IS_STARTED.swap(true, Ordering::Relaxed);
    // The reader of this process is kept: a long step may be over before another one could begin.
    let begin = || {
        let mut own = Reader::attach(std::process::id(), TRAINING.number())?;
        Ok(move |window: &Window| sample_long_step(&mut own, window))
    };
    is_first.then(|| stacks::sample_long_steps(notes, marks::progress(), begin))
}

/// Samples this process, and those that it started if the step lasts.
fn sample_long_step(own: &mut Reader, window: &Window) -> Result<Profile, String> {
    own.set_main(TRAINING.number());
    let others = window.clone();
    let others = thread::Builder::new().name("paceline-sample".into()).spawn(move || {
        let cpu_before = agent::clock::thread_cpu_nanos();
        others.wait(OTHERS_AFTER);
        let sampled = if others.is_over() { Ok(Vec::new()) } else { processes(&others, &mut own_process()) };
        others.spend(agent::clock::thread_cpu_nanos().saturating_sub(cpu_before));
        sampled.unwrap_or_default()
    });
    let mut sampled = vec![(true, own.sample(window))];
    let others = others.ok().and_then(|others| others.join().ok()).unwrap_or_default();
    sampled.extend(others);
    Ok(profile::rank_profile(sampled))
}

/// Returns the processes that are sampled elsewhere: this one.
fn own_process() -> HashSet<u32> {
    HashSet::from([std::process::id()])
}

/// Samples this process and those that it started, except the `known` ones.
///
/// # Errors
/// Returns the reason why this process has no stacks.
fn sample(window: &Window, known: &mut HashSet<u32>) -> Result<Profile, String> {
    Ok(profile::rank_profile(processes(window, known)?))
}

/// Samples this process (`true`) and those that it started (`false`), except the `known` ones.
///
/// # Errors
/// Returns the reason why this process has no stacks.
fn processes(window: &Window, known: &mut HashSet<u32>) -> Result<Vec<(bool, Sampled)>, String> {
    let (own, mut samplers) = (std::process::id(), Vec::new());
    while !window.is_over() {
        for pid in descendants::with_descendants(own) {
            if samplers.len() < MAX_PROCESSES && known.insert(pid) && !descendants::compiles(pid) {
                samplers.extend(start(pid, window).map(|sampler| (pid == own, sampler)));
            }
        }
        window.wait(SEARCH_EVERY);
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
    Ok(sampled)
}

fn start(pid: u32, window: &Window) -> Option<JoinHandle<Result<Sampled, String>>> {
    let window = window.clone();
    let sampler = thread::Builder::new().name("paceline-sample".into());
    // The main thread of a process has the process's number.
    let main = if pid == std::process::id() { TRAINING.number() } else { pid };
    let work = move || {
        let sampled = Reader::attach(pid, main).map(|mut reader| reader.sample(&window));
        window.spend(agent::clock::thread_cpu_nanos());
        sampled
    };
    sampler.spawn(work).ok()
}
