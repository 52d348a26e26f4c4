//! Samples the Python threads of one process.

use py_spy::config::LockingStrategy;
use py_spy::{Config, PythonSpy, StackTrace};
use stacks::Window;
use stacks::pace::Pace;
use stacks::profile::{Sampled, Thread, shortened};
use wire::stacks::{Frame, MAX_DEPTH, MAX_STACKS};

/// How often the attachment to a process is tried. A process may be starting.
const ATTEMPTS: u64 = 5;
/// The names of this library's Python threads.
const OWN_THREAD: &str = "paceline-wait";
/// The innermost frame of a process that `multiprocessing` started by `fork`, whose outer frames are its parent's.
const FORKED: (&str, &str) = ("multiprocessing/process.py", "_bootstrap");

/// A part of the paths of the package's own modules.
const OWN_MODULES: &str = "/paceline/_";
/// What begins the name of the folder into which a launcher unpacks Paceline's own package (`server/src/launch/python.rs`).
const UNPACKED: &str = "/paceline-python-";

/// Reads the stacks of one process. It stays on the thread that made it.
pub(super) struct Reader {
    spy: PythonSpy,
    /// The system's number of the main thread.
    main: u32,
}

impl Reader {
    /// Finds out where a process has its stacks. `main` is the system's number of its main thread.
    ///
    /// # Errors
    /// Returns the reason why the process cannot be sampled.
    pub(super) fn attach(pid: u32, main: u32) -> Result<Self, String> {
        let settings = Config { blocking: LockingStrategy::NonBlocking, ..Config::default() };
        let pid = py_spy::Pid::try_from(pid).map_err(|error| error.to_string())?;
        let spy = PythonSpy::retry_new(pid, &settings, ATTEMPTS).map_err(|error| format!("{error:#}"))?;
        Ok(Self { spy, main })
    }

    /// Sets which thread is the main one.
    pub(super) fn set_main(&mut self, main: u32) {
        self.main = main;
    }

    /// Samples the process until a window is over.
    pub(super) fn sample(&mut self, window: &Window) -> Sampled {
        let (mut sampled, mut pace) = (Sampled::default(), Pace::begin());
        while !window.is_over() {
            match self.spy.get_stack_traces() {
                Ok(traces) => {
                    sampled.samples += 1;
                    traces.iter().for_each(|trace| add(&mut sampled, trace, self.main));
                }
                Err(_) if self.spy.process.exe().is_err() => break,
                Err(_) => sampled.torn += 1,
            }
            pace.wait(window);
        }
        sampled
    }
}

fn add(sampled: &mut Sampled, trace: &StackTrace, main: u32) {
    let thread = thread(trace, main);
    if trace.frames.is_empty() || thread == Thread::Named(OWN_THREAD.to_owned()) {
        return;
    }
    let is_first =
        |frame: &py_spy::Frame| frame.filename.ends_with(FORKED.0) && frame.name.ends_with(FORKED.1);
    let own = trace.frames.iter().rposition(is_first).unwrap_or(trace.frames.len());
    let frames = trace.frames[..own].iter().map(frame).collect();
    let frames: Vec<Frame> = remove_hooks(frames).into_iter().rev().take(MAX_DEPTH).collect();
    let is_full = sampled.stacks.len() >= MAX_STACKS;
    let key = (thread, frames);
    if !is_full || sampled.stacks.contains_key(&key) {
        *sampled.stacks.entry(key).or_default() += 1;
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
    Frame { function: shortened(&frame.name), file: shortened(common(&frame.filename)), line }
}

/// Leaves out Paceline's own frames, which its hooks put between those of the job. The innermost frame stays: a thread that is in a hook
/// is seen there. `frames` begins with it.
fn remove_hooks(frames: Vec<Frame>) -> Vec<Frame> {
    let is_kept = |(at, frame): &(usize, Frame)| *at == 0 || !frame.file.contains(OWN_MODULES);
    frames.into_iter().enumerate().filter(is_kept).map(|(_, frame)| frame).collect()
}

/// Returns a file's path without the name of the folder into which a launcher unpacked Paceline's own package. Each launcher
/// has another one, and the frames of ranks of several launchers are compared.
fn common(file: &str) -> &str {
    let unpacked = file.split_once(UNPACKED).and_then(|(_, rest)| Some(rest.split_at(rest.find('/')?).1));
    unpacked.unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use wire::stacks::Frame;

    use super::{common, remove_hooks};

    #[test]
    fn hooks_are_seen_only_while_a_thread_is_in_them() {
        let frames = |files: &[&str]| -> Vec<Frame> {
            let frame = |file: &&str| Frame { function: "f".into(), file: (*file).into(), line: 1 };
            files.iter().map(frame).collect()
        };
        let [hook, torch, own] = ["/paceline/_phases.py", "/site-packages/torch/nn/linear.py", "train.py"];
        assert_eq!(remove_hooks(frames(&[torch, hook, own])), frames(&[torch, own]));
        assert_eq!(remove_hooks(frames(&[hook, torch, own])), frames(&[hook, torch, own]));
    }

    #[test]
    fn frames_of_the_own_package_are_the_same_whichever_launcher_unpacked_it() {
        assert_eq!(common("/tmp/paceline-python-a1B2c3/paceline/_waits.py"), "/paceline/_waits.py");
        for other in ["train.py", "/home/me/paceline-python-job.py", "/site-packages/paceline/_waits.py"] {
            assert_eq!(common(other), other);
        }
    }
}
