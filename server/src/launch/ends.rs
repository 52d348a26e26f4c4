//! When the rank processes on this host end. Another launcher, such as torchrun, ends the other ranks a moment after one has
//! failed, so the order of their ends shows which one failed first. Ranks that were killed cannot say it.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use background::{Background, Stop};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use wire::ids::{Rank, RunId};

use super::processes;

/// The interval at which new processes of the job are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The time at which each rank's process ended, as far as it was seen.
pub(super) type Ends = BTreeMap<Rank, SystemTime>;

/// A thread that waits for the ends of a job's rank processes. Dropping it stops the thread at once.
pub(super) struct Watch {
    // Dropped in this order: the thread is woken before it is awaited.
    alarm: Option<Alarm>,
    thread: Background,
    seen: mpsc::Receiver<Ends>,
}

/// Ends the wait of the thread when it is dropped.
struct Alarm(Arc<OwnedFd>);

impl Drop for Alarm {
    fn drop(&mut self) {
        // If it fails, the thread stops when it looks for processes again.
        let _unheard = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl Watch {
    /// Watches the rank processes of a run that are on this host, or start on it.
    pub(super) fn start(run: RunId) -> Self {
        let (send, seen) = mpsc::sync_channel(1);
        let bell = eventfd(0, EventfdFlags::CLOEXEC).ok().map(Arc::new);
        let alarm = bell.clone().map(Alarm);
        let work = move |stop: &Stop| {
            let mut processes = Processes { bell, ..Processes::default() };
            while !stop.is_asked() {
                processes.look(&run);
                processes.wait();
            }
            // A job that succeeded does not ask.
            let _unasked = send.send(processes.ended);
        };
        Self { alarm, thread: Background::start("paceline-ends", work), seen }
    }

    /// Stops watching, and returns the ends that were seen.
    pub(super) fn finish(self) -> Ends {
        let Self { alarm, thread, seen } = self;
        drop(alarm);
        drop(thread);
        seen.try_recv().unwrap_or_default()
    }
}

/// The process of a rank that runs.
struct RunningRank {
    rank: Rank,
    pid: u32,
    process: OwnedFd,
}

#[derive(Default)]
struct Processes {
    /// Processes of other jobs.
    foreign: HashSet<u32>,
    running: Vec<RunningRank>,
    ended: Ends,
    bell: Option<Arc<OwnedFd>>,
}

impl Processes {
    /// Looks for processes of ranks that are not watched yet.
    fn look(&mut self, run: &RunId) {
        let all: HashSet<u32> = processes::all().collect();
        self.foreign.retain(|pid| all.contains(pid));
        for pid in all {
            if self.foreign.contains(&pid) || self.running.iter().any(|running| running.pid == pid) {
                continue;
            }
            match processes::is_of(pid, run) {
                Some(true) => self.watch(pid),
                Some(false) => _ = self.foreign.insert(pid),
                None => {}
            }
        }
    }

    /// Watches a process if it is that of a rank.
    fn watch(&mut self, pid: u32) {
        if let Some(rank) = rank_of(pid)
            && let Some(id) = Pid::from_raw(pid.cast_signed())
            && let Ok(process) = pidfd_open(id, PidfdFlags::empty())
        {
            // An elastic launcher starts a rank again.
            self.ended.remove(&rank);
            self.running.push(RunningRank { rank, pid, process });
        }
    }

    /// Waits until it is time to look again, or until the bell rings, and notes the processes that end meanwhile. Ends that are seen at
    /// once have the same time, because their order is not known.
    fn wait(&mut self) {
        let begin = Instant::now();
        loop {
            let left = LOOK_EVERY.saturating_sub(begin.elapsed());
            let Ok(limit) = Timespec::try_from(left) else { return };
            let watched = self.running.iter().map(|running| &running.process).chain(self.bell.as_deref());
            let mut fds: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            match poll(&mut fds, Some(&limit)) {
                Ok(0) => return,
                Ok(_) => {}
                // A signal, or a limit of the system.
                Err(_) => return std::thread::sleep(left),
            }
            let now = SystemTime::now();
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let has_rung = self.bell.is_some() && ready.last() == Some(&true);
            let mut ready = ready.into_iter();
            let ended = self.running.extract_if(.., |_| ready.next().unwrap_or(false));
            self.ended.extend(ended.map(|ended| (ended.rank, now)));
            if has_rung {
                return;
            }
        }
    }
}

/// Returns the rank that a process sends the records of.
fn rank_of(pid: u32) -> Option<Rank> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.find_map(|name| agent::drain_thread::rank_of(name.trim_end()))
}
