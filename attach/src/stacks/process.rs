//! Samples the Python threads of one process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpu::background::Stop;
use py_spy::config::LockingStrategy;
use py_spy::{Config, PythonSpy, StackTrace};
use wire::stacks::{Frame, MAX_DEPTH, MAX_STACKS};

/// How often the attachment to a process is tried. A process may be starting.
const ATTEMPTS: u64 = 5;
/// The longest name of a function or file, in bytes.
const MAX_NAME_BYTES: usize = 512;
/// The names of this library's Python threads.
const OWN_THREAD: &str = "paceline-wait";
/// The innermost frame of a process that `multiprocessing` started by `fork`, whose outer frames are its parent's.
const FORKED: (&str, &str) = ("multiprocessing/process.py", "_bootstrap");

/// A thread, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thread {
    /// The main thread.
    Main,
    /// Another thread.
    Named(String),
}

/// The samples of a process.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    /// The number of samples.
    pub samples: u64,
    /// The number of samples that were dropped because a stack changed while it was read.
    pub torn: u64,
    /// How often each thread had each stack, with the outermost frame first.
    pub stacks: BTreeMap<(Thread, Vec<Frame>), u64>,
}

/// Samples a process until a time. `main` is the system's number of its main thread.
///
/// # Errors
/// Returns the reason why the process cannot be sampled.
pub(super) fn sample(
    (pid, main): (u32, u32),
    until: Instant,
    every: Duration,
    stop: &Stop,
) -> Result<Sampled, String> {
    let settings = Config { blocking: LockingStrategy::NonBlocking, ..Config::default() };
    let pid = py_spy::Pid::try_from(pid).map_err(|error| error.to_string())?;
    let mut spy = PythonSpy::retry_new(pid, &settings, ATTEMPTS).map_err(|error| format!("{error:#}"))?;
    let (mut sampled, mut next) = (Sampled::default(), Instant::now());
    while next < until && !stop.is_asked() {
        match spy.get_stack_traces() {
            Ok(traces) => {
                sampled.samples += 1;
                traces.iter().for_each(|trace| sampled.add(trace, main));
            }
            Err(_) if spy.process.exe().is_err() => break,
            Err(_) => sampled.torn += 1,
        }
        // A late sample is not made up for.
        next = (next + every).max(Instant::now());
        stop.wait(next.saturating_duration_since(Instant::now()));
    }
    Ok(sampled)
}

impl Sampled {
    fn add(&mut self, trace: &StackTrace, main: u32) {
        let thread = thread(trace, main);
        if trace.frames.is_empty() || thread == Thread::Named(OWN_THREAD.to_owned()) {
            return;
        }
        let is_first =
            |frame: &py_spy::Frame| frame.filename.ends_with(FORKED.0) && frame.name.ends_with(FORKED.1);
        let own = trace.frames.iter().rposition(is_first).unwrap_or(trace.frames.len());
        let frames = trace.frames[..own].iter().rev().take(MAX_DEPTH).map(frame).collect();
        let is_full = self.stacks.len() >= MAX_STACKS;
        let key = (thread, frames);
        if !is_full || self.stacks.contains_key(&key) {
            *self.stacks.entry(key).or_default() += 1;
        }
    }
}

fn thread(trace: &StackTrace, main: u32) -> Thread {
    // Before Python 3.11, the id is not known.
    let name = trace.thread_name.as_deref();
    let is_main = trace.os_thread_id.map_or(name == Some("MainThread"), |id| id == u64::from(main));
    if is_main { Thread::Main } else { Thread::Named(shortened(name.unwrap_or("native"))) }
}

fn frame(frame: &py_spy::Frame) -> Frame {
    let line = u32::try_from(frame.line).unwrap_or(0);
    Frame { function: shortened(&frame.name), file: shortened(&frame.filename), line }
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_NAME_BYTES)].to_owned()
}
