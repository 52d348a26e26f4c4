//! The profile of a rank, from the samples of its processes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use wire::stacks::{Frame, MAX_FRAMES, MAX_STACKS, MAX_THREADS, Profile, Stack, ThreadRole, ThreadStacks};

/// The longest name of a function or file, in bytes.
const MAX_NAME_BYTES: usize = 512;

/// A thread, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thread {
    /// The main thread.
    Main,
    /// Another thread.
    Named(String),
}

/// The samples of a process.
#[derive(Debug, Default)]
pub struct Sampled {
    /// The number of samples.
    pub samples: u64,
    /// The number of samples that were dropped, because a stack changed while it was read or could not be read.
    pub torn: u64,
    /// How often each thread had each stack, with the outermost frame first.
    pub stacks: BTreeMap<(Thread, Vec<Frame>), u64>,
}

/// Returns a name with at most [`MAX_NAME_BYTES`] bytes.
#[must_use]
pub fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_NAME_BYTES)].to_owned()
}

/// Combines the samples of a rank's own process (`true`) and of others. The same thread of several worker processes
/// becomes one.
#[must_use]
pub fn rank_profile(sampled: Vec<(bool, Sampled)>) -> Profile {
    let mut profile = Profile::default();
    let mut frames = Frames::default();
    let mut threads: BTreeMap<(ThreadRole, String), Collected> = BTreeMap::new();
    for (is_own, process) in sampled {
        profile.torn += process.torn;
        let mut last = None;
        for ((thread, stack), count) in process.stacks {
            let key = role(is_own, thread);
            let collected = threads.entry(key.clone()).or_default();
            if last.as_ref() != Some(&key) {
                collected.processes += 1;
                collected.samples += process.samples;
                last = Some(key);
            }
            if let Some(stack) = stack.into_iter().map(|frame| frames.number(frame)).collect() {
                *collected.stacks.entry(stack).or_default() += count;
            }
        }
    }
    profile.threads = threads.into_iter().take(MAX_THREADS).map(Collected::finish).collect();
    profile.frames = frames.into_ordered();
    profile
}

/// Returns the part of a profile that fits into a size, in bytes: the main threads first, and of each thread its most frequent
/// stacks.
#[must_use]
pub fn most_frequent(profile: &Profile, bytes: usize) -> Profile {
    let mut left = bytes;
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    let mut kept = Profile { torn: profile.torn, ..Profile::default() };
    let mut threads: Vec<&ThreadStacks> = profile.threads.iter().collect();
    threads.sort_by_key(|thread| !matches!(thread.role, ThreadRole::Main | ThreadRole::Worker));
    for thread in threads {
        let mut stacks = Vec::new();
        for stack in &thread.stacks {
            let new = stack.frames.iter().filter(|at| !numbers.contains_key(at));
            let new = new.filter_map(|at| profile.frames.get(*at as usize));
            let frame_bytes = new.map(|frame| size_of::<Frame>() + frame.function.len() + frame.file.len());
            let size = size_of::<Stack>() + size_of_val(stack.frames.as_slice()) + frame_bytes.sum::<usize>();
            let Some(rest) = left.checked_sub(size) else { break };
            left = rest;
            let frames = stack.frames.iter().map(|at| {
                *numbers.entry(*at).or_insert_with(|| {
                    kept.frames.extend(profile.frames.get(*at as usize).cloned());
                    kept.frames.len() as u32 - 1
                })
            });
            stacks.push(Stack { count: stack.count, frames: frames.collect() });
        }
        if !stacks.is_empty() {
            kept.threads.push(ThreadStacks { stacks, ..thread.clone() });
        }
    }
    kept
}

fn role(is_own: bool, thread: Thread) -> (ThreadRole, String) {
    match (is_own, thread) {
        (true, Thread::Main) => (ThreadRole::Main, String::new()),
        (true, Thread::Named(name)) => (ThreadRole::Thread, name),
        (false, Thread::Main) => (ThreadRole::Worker, String::new()),
        (false, Thread::Named(name)) => (ThreadRole::WorkerThread, name),
    }
}

/// The samples of a thread.
#[derive(Default)]
struct Collected {
    processes: u32,
    samples: u64,
    stacks: BTreeMap<Vec<u32>, u64>,
}

impl Collected {
    fn finish(((role, name), collected): ((ThreadRole, String), Self)) -> ThreadStacks {
        let stacks = collected.stacks.into_iter().map(|(frames, count)| Stack { count, frames });
        let mut stacks: Vec<Stack> = stacks.collect();
        stacks.sort_by_key(|stack| std::cmp::Reverse(stack.count));
        stacks.truncate(MAX_STACKS);
        ThreadStacks { role, name, processes: collected.processes, samples: collected.samples, stacks }
    }
}

/// The frames so far, with their numbers.
#[derive(Default)]
struct Frames(BTreeMap<Frame, u32>);

impl Frames {
    /// Returns the number of a frame; `None` if there are too many.
    fn number(&mut self, frame: Frame) -> Option<u32> {
        let count = self.0.len();
        match self.0.entry(frame) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(new) => (count < MAX_FRAMES).then(|| *new.insert(count as u32)),
        }
    }

    fn into_ordered(self) -> Vec<Frame> {
        let mut frames: Vec<(Frame, u32)> = self.0.into_iter().collect();
        frames.sort_by_key(|(_, number)| *number);
        frames.into_iter().map(|(frame, _)| frame).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str) -> Frame {
        Frame { function: function.into(), file: "train.py".into(), line: 1 }
    }

    fn process(samples: u64, stacks: &[(Thread, &[&str], u64)]) -> Sampled {
        let stacks = stacks.iter().map(|(thread, functions, count)| {
            ((thread.clone(), functions.iter().map(|function| frame(function)).collect()), *count)
        });
        Sampled { samples, torn: 1, stacks: stacks.collect() }
    }

    #[test]
    fn the_most_frequent_stacks_of_the_main_threads_fit_first() {
        let pin = Thread::Named("pin".into());
        let own = process(
            50,
            &[
                (Thread::Main, &["main", "next"], 9),
                (Thread::Main, &["main", "save"], 40),
                (pin, &["pin"], 50),
            ],
        );
        let whole = rank_profile(vec![(true, own)]);
        let counts = |profile: &Profile| -> Vec<u64> {
            profile.threads.iter().flat_map(|thread| &thread.stacks).map(|stack| stack.count).collect()
        };
        assert_eq!(counts(&most_frequent(&whole, 1 << 20)), [40, 9, 50]);
        let one_stack = size_of::<Stack>() + 2 * size_of::<u32>() + 2 * (size_of::<Frame>() + 12);
        let small = most_frequent(&whole, one_stack);
        assert_eq!((counts(&small), small.threads[0].samples), (vec![40], 50));
        let functions: Vec<&str> = small.frames.iter().map(|frame| frame.function.as_str()).collect();
        assert_eq!(
            (functions, small.threads[0].stacks[0].frames.as_slice()),
            (vec!["main", "save"], &[0, 1][..])
        );
        assert_eq!(most_frequent(&whole, 10).threads, []);
    }

    #[test]
    fn workers_are_one_thread_and_shares_are_of_their_samples() {
        let pin = Thread::Named("pin".into());
        let own = process(50, &[(Thread::Main, &["main", "next"], 49), (pin, &["pin"], 50)]);
        let worker =
            || process(40, &[(Thread::Main, &["loop"], 10), (Thread::Main, &["loop", "decode"], 30)]);
        let profile = rank_profile(vec![(true, own), (false, worker()), (false, worker())]);
        let threads: Vec<(ThreadRole, u32, u64, Vec<u64>)> = profile
            .threads
            .iter()
            .map(|thread| {
                let counts = thread.stacks.iter().map(|stack| stack.count).collect();
                (thread.role, thread.processes, thread.samples, counts)
            })
            .collect();
        let expected = [
            (ThreadRole::Main, 1, 50, vec![49]),
            (ThreadRole::Thread, 1, 50, vec![50]),
            (ThreadRole::Worker, 2, 80, vec![60, 20]),
        ];
        assert_eq!(threads, expected);
        assert_eq!((profile.torn, profile.frames.len()), (3, 5));
        let decode = profile.threads[2].stacks[0].frames.last().map(|at| &profile.frames[*at as usize]);
        assert_eq!(decode, Some(&frame("decode")));
    }
}
