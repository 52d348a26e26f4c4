//! Samples the stacks of this process's native threads.
//!
//! Each sampled thread is interrupted by a signal for some tens of microseconds, in which a handler copies its registers and
//! its stack. The sampler unwinds the copy with the tables that compilers write for exceptions, so the program needs no
//! frame pointers. Functions have names if the program has symbols, and lines if it has line tables.
//!
//! Nothing is interrupted unless the server has asked for stacks, or a step lasts far longer than usual. Calls of the system that a signal ends early are restarted
//! by the kernel where it can; where it cannot, as in `poll` or with a timeout on a socket, the call returns `EINTR`, and
//! the program must call again, as it must after any signal.

mod modules;
mod snapshot;
mod symbols;

use std::collections::{BTreeMap, HashMap};
use std::fs;

use wire::stacks::{MAX_DEPTH, MAX_STACKS, Profile};

use crate::pace::Pace;
use crate::profile::{self, Sampled, Thread};
use crate::{TrainingThread, Window};
use modules::Unwinding;
use snapshot::Snapshots;
use symbols::Symbols;

/// The largest number of threads that are sampled.
const MAX_THREADS: usize = 64;
/// A thread that did not answer this often, and never did, blocks signals.
const MAX_SILENT: u32 = 3;
/// The start of the names of the agent's and the reducer's own threads, which are not sampled.
const OWN_THREADS: &str = "paceline-";

/// Returns the sampler of a process, for [`crate::answer_requests`] and [`crate::sample_long_steps`].
pub fn sampler(training: TrainingThread) -> impl Fn(&Window) -> Result<Profile, String> + Send {
    move |window| sample(training.number(), window)
}

/// Samples all threads of this process except the agent's own until a window is over. `training` is the system's number of
/// the thread that counts as the main thread.
///
/// # Errors
/// Returns the reason why no thread can be sampled.
pub fn sample(training: u32, window: &Window) -> Result<Profile, String> {
    let mut sampling = Sampling::begin()?;
    let mut pace = Pace::begin();
    while !window.is_over() {
        sampling.sample(threads(training));
        pace.wait(window);
    }
    sampling.finish()
}

/// Samples in progress.
struct Sampling {
    snapshots: Snapshots,
    unwinding: Unwinding,
    /// How often each thread did not answer; `None` for threads that have answered.
    silent: HashMap<i32, Option<u32>>,
    /// How often each thread had each stack, as addresses with the innermost first.
    stacks: BTreeMap<(Thread, Vec<u64>), u64>,
    /// The number of samples, and of those that were dropped.
    samples: u64,
    torn: u64,
}

impl Sampling {
    fn begin() -> Result<Self, String> {
        let snapshots = Snapshots::begin()?;
        let unwinding = Unwinding::read();
        let (silent, stacks) = (HashMap::new(), BTreeMap::new());
        Ok(Self { snapshots, unwinding, silent, stacks, samples: 0, torn: 0 })
    }

    /// Takes one sample of each thread that has not been silent too often.
    fn sample(&mut self, threads: Vec<(i32, Thread)>) {
        self.samples += 1;
        for (number, thread) in threads {
            let silence = self.silent.entry(number).or_insert(Some(0));
            if silence.is_some_and(|times| times >= MAX_SILENT) {
                continue;
            }
            let Some(snapshot) = self.snapshots.copy(number) else {
                *silence = silence.map(|times| times + 1);
                self.torn += 1;
                continue;
            };
            *silence = None;
            let key = (thread, self.unwinding.addresses(&snapshot));
            if self.stacks.len() < MAX_STACKS || self.stacks.contains_key(&key) {
                *self.stacks.entry(key).or_default() += 1;
            }
        }
    }

    /// Names the functions of all stacks.
    fn finish(self) -> Result<Profile, String> {
        if self.stacks.is_empty() {
            return Err(
                "no thread could be sampled: all block signals, or the system forbids process_vm_readv"
                    .into(),
            );
        }
        let mut symbols = Symbols::new(self.unwinding.into_names());
        let mut sampled = Sampled { samples: self.samples, torn: self.torn, stacks: BTreeMap::new() };
        for ((thread, addresses), count) in self.stacks {
            let frames = addresses.iter().rev().flat_map(|address| symbols.frames(*address));
            let frames = frames.take(MAX_DEPTH).collect();
            *sampled.stacks.entry((thread, frames)).or_default() += count;
        }
        Ok(profile::rank_profile(vec![(true, sampled)]))
    }
}

/// Returns the threads of this process, the one that trains first.
fn threads(training: u32) -> Vec<(i32, Thread)> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let mut threads: Vec<(i32, Thread)> = tasks
        .filter_map(|task| {
            let number: i32 = task.file_name().to_str()?.parse().ok()?;
            if number.unsigned_abs() == training {
                return Some((number, Thread::Main));
            }
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            let name = name.trim_end();
            (!name.starts_with(OWN_THREADS)).then(|| (number, Thread::Named(name.to_owned())))
        })
        .collect();
    threads.sort_by(|(_, a), (_, b)| a.cmp(b));
    threads.truncate(MAX_THREADS);
    threads
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use background::Stop;

    use super::*;

    #[inline(never)]
    fn waits_in_a_named_function(end: &AtomicBool) {
        while !end.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[inline(never)]
    fn computes_in_a_named_function(end: &AtomicBool) {
        while !end.load(Ordering::Relaxed) {
            std::hint::black_box((1..1_000).map(|x| f64::from(std::hint::black_box(x)).sqrt()).sum::<f64>());
        }
    }

    #[test]
    fn sleeping_and_computing_threads_are_found_in_their_functions() {
        let end = Arc::new(AtomicBool::new(false));
        let start = |name: &str, work: fn(&AtomicBool)| {
            let end = end.clone();
            std::thread::Builder::new().name(name.into()).spawn(move || work(&end)).unwrap()
        };
        let threads = [
            start("sleeps", waits_in_a_named_function),
            start("computes", computes_in_a_named_function),
            start("paceline-own", waits_in_a_named_function),
        ];
        let profile =
            sample(std::process::id(), &Window::new(Duration::from_millis(500), &Stop::default())).unwrap();
        end.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());

        for (name, function) in
            [("sleeps", "waits_in_a_named_function"), ("computes", "computes_in_a_named_function")]
        {
            let thread = profile.threads.iter().find(|thread| thread.name == name).unwrap();
            let has_function = |stack: &&wire::stacks::Stack| {
                let mut frames = stack.frames.iter().map(|at| &profile.frames[*at as usize]);
                frames.any(|frame| frame.function.contains(function))
            };
            let samples_with_function: u64 =
                thread.stacks.iter().filter(has_function).map(|stack| stack.count).sum();
            assert!(
                samples_with_function * 10 >= thread.samples * 9,
                "{name}: {samples_with_function} of {}: {profile:#?}",
                thread.samples
            );
            // The outermost function of a thread is known only if all others were unwound.
            let begins_thread = |stack: &wire::stacks::Stack| {
                let outermost = stack.frames.first().map(|at| profile.frames[*at as usize].function.as_str());
                outermost
                    .is_some_and(|function| function.contains("clone") || function.contains("start_thread"))
            };
            let whole: u64 =
                thread.stacks.iter().filter(|stack| begins_thread(stack)).map(|stack| stack.count).sum();
            assert!(whole * 10 >= thread.samples * 9, "{name}: {whole} of {}: {profile:#?}", thread.samples);
        }
        assert!(!profile.threads.iter().any(|thread| thread.name == "paceline-own"), "{profile:#?}");
    }
}
