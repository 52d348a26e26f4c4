//! Moves the ranks of a job between cores all the time, so that a slow core slows all ranks alike.
//!
//! The cores of a virtual machine are not equal. Another virtual machine can take a third or more of one core for a
//! second or two. No counter inside this machine shows that, and a rank bound to that core really is slow. A test of
//! whether the right *rank* is named must therefore give every rank every core for the same time.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::programs::{Job, wait_until};

/// The interval between two exchanges of cores. Every step has several.
const EVERY: Duration = Duration::from_millis(5);

/// A thread that exchanges the cores of ranks until it is dropped.
pub struct Crossover {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Crossover {
    /// Waits until the ranks of a job exist, and starts exchanging their cores.
    ///
    /// # Errors
    /// Returns an error if the ranks do not start.
    pub fn new(job: &Job, ranks: usize) -> anyhow::Result<Self> {
        let all = || job.rank_pids().ok().filter(|pids| pids.len() == ranks);
        let pids = wait_until("the ranks to start", all)?;
        let cores = thread::available_parallelism()?.get();
        let (stop, stopped) = channel();
        let exchange = move || {
            let mut turn = 0;
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                turn += 1;
                for (rank, pid) in pids.iter().enumerate() {
                    bind(*pid, (rank + turn) % cores);
                }
            }
        };
        let thread = thread::Builder::new().name("crossover".into()).spawn(exchange)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Crossover {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The thread does not panic, and the job has ended by now in any case.
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Binds all threads of a process to one core. Threads that have ended are ignored.
pub fn bind(pid: u32, core: usize) {
    let mut core_set = CpuSet::new();
    core_set.set(core);
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads {
        let number = thread.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let Some(number) = number {
            let _ended = sched_setaffinity(Some(number), &core_set);
        }
    }
}
