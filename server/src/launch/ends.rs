//! When the rank processes on this host end. Another launcher, such as torchrun, ends the other ranks a moment after one has
//! failed, so the order of their ends shows which one failed first. Ranks that were killed cannot say it.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::{Instant, SystemTime};

use background::{Background, Stop};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use wire::ids::{Rank, RunId};

use super::processes;

/// The interval at which new processes of the job are looked for, and the longest time until the thread stops.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// The time at which each rank's process ended, as far as it was seen.
pub(super) type Ends = BTreeMap<Rank, SystemTime>;

/// A thread that waits for the ends of a job's rank processes.
pub(super) struct Watch {
    thread: Background,
    seen: mpsc::Receiver<Ends>,
}

impl Watch {
    /// Watches the rank processes of a run that are on this host, or start on it.
    pub(super) fn start(run: RunId) -> Self {
        let (send, seen) = mpsc::sync_channel(1);
        let work = move |stop: &Stop| {
            let mut processes = Processes::default();
            while !stop.is_asked() {
                processes.look(&run);
                processes.wait();
            }
            // A job that succeeded does not ask.
            let _unasked = send.send(processes.ended);
        };
        Self { thread: Background::start("paceline-ends", work), seen }
    }

    /// Stops watching, and returns the ends that were seen.
    pub(super) fn finish(self) -> Ends {
        drop(self.thread);
        self.seen.try_recv().unwrap_or_default()
    }
}

#[derive(Default)]
struct Processes {
    /// Processes of other jobs.
    foreign: HashSet<u32>,
    running: Vec<(Rank, u32, OwnedFd)>,
    ended: Ends,
}

impl Processes {
    /// Looks for processes of ranks that are not watched yet.
    fn look(&mut self, run: &RunId) {
        let all: HashSet<u32> = processes::all().collect();
        self.foreign.retain(|pid| all.contains(pid));
        for pid in all {
            if self.foreign.contains(&pid) || self.running.iter().any(|(_, watched, _)| *watched == pid) {
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
            self.running.push((rank, pid, process));
        }
    }

    /// Waits until processes end, but not for longer than until it is time to look again. Ends that are seen at once have the same
    /// time, because their order is not known.
    fn wait(&mut self) {
        let begin = Instant::now();
        let limit = std::time::Duration::try_from(LOOK_EVERY).unwrap_or_default();
        loop {
            let left = limit.saturating_sub(begin.elapsed());
            let Ok(left) = Timespec::try_from(left) else { return };
            let mut fds: Vec<PollFd<'_>> =
                self.running.iter().map(|(.., process)| PollFd::new(process, PollFlags::IN)).collect();
            if poll(&mut fds, Some(&left)).is_ok_and(|ready| ready == 0) {
                return;
            }
            let now = SystemTime::now();
            let mut has_ended = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
            let ended = self.running.extract_if(.., |_| has_ended.next().unwrap_or(false));
            self.ended.extend(ended.map(|(rank, ..)| (rank, now)));
        }
    }
}

/// Returns the rank that a process sends the records of.
fn rank_of(pid: u32) -> Option<Rank> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.find_map(|name| agent::drain_thread::rank_of(name.trim_end()))
}
