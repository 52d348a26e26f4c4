//! Ranks that exchange cores all the time, so that a core that is slower than the other is no rank's own.
//!
//! The cores of a virtual machine are not alike: what runs beside it takes a third and more off one of them for a
//! second or two, which no counter of this machine shows, and a rank bound to that core truly is slow. Where the
//! question is whether a *rank* is named rightly, every rank must have every core for as long.

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::programs::{Job, wait_until};

/// Between two exchanges: some within every step.
const EVERY: Duration = Duration::from_millis(5);

/// Exchanges cores until it is dropped.
pub struct Crossover {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Crossover {
    /// Waits until the ranks of a job are there, and begins.
    ///
    /// # Errors
    /// When they do not come.
    pub fn of(job: &Job, ranks: usize) -> anyhow::Result<Self> {
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
        // It panics nowhere; if it did, the job has ended by now.
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Binds all threads of a process to a core. One that has ended meanwhile needs none.
pub fn bind(pid: u32, core: usize) {
    let mut one = CpuSet::new();
    one.set(core);
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads {
        let number = thread.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let Some(number) = number {
            let _ended = sched_setaffinity(Some(number), &one);
        }
    }
}
