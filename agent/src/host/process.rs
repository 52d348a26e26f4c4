//! What this process, its threads and its descendants have used so far.

use std::fs;

use super::nanos_per_tick;
use crate::clock;

/// The largest number of threads and of descendants that are read.
const MAX_TASKS: usize = 1_024;

/// Returns the threads of this process.
pub(super) fn tasks() -> Vec<u32> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MAX_TASKS).collect()
}

/// Returns the time since this process began, in nanoseconds. The kernel counts its start in clock ticks since the boot:
/// field 22 of `/proc/PID/stat`.
pub(super) fn age() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let began: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    Some(clock::uptime_nanos().saturating_sub(began * nanos_per_tick()))
}

/// Returns how long a thread was ready to run and did not, in nanoseconds: the second number of its `schedstat`.
pub(super) fn run_delay(task: u32) -> Option<u64> {
    let schedstat = fs::read_to_string(format!("/proc/self/task/{task}/schedstat")).ok()?;
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the processor time of all descendants, such as a data loader's workers, in nanoseconds. It includes living
/// descendants, and ended ones whose parent waited for them.
pub(super) fn children_ran(tasks: &[u32]) -> u64 {
    let children_of = |path: String| {
        let children = fs::read_to_string(path).unwrap_or_default();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    };
    let own = tasks.iter().flat_map(|task| children_of(format!("/proc/self/task/{task}/children")));
    let mut open: Vec<u32> = own.collect();
    let mut ticks = times("/proc/self/stat").map_or(0, |times| times.ended_children);
    let mut seen = 0;
    while let Some(pid) = open.pop()
        && seen < MAX_TASKS
    {
        seen += 1;
        ticks += times(&format!("/proc/{pid}/stat")).map_or(0, |times| times.own + times.ended_children);
        open.extend(children_of(format!("/proc/{pid}/task/{pid}/children")));
    }
    ticks * nanos_per_tick()
}

/// The processor time of a process, in clock ticks.
struct ProcessTimes {
    own: u64,
    ended_children: u64,
}

/// Reads fields 14 to 17 of `/proc/PID/stat`. Fields are counted from the end of the name, which may contain any
/// character.
fn times(path: &str) -> Option<ProcessTimes> {
    let stat = fs::read_to_string(path).ok()?;
    let fields: Vec<u64> = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse().ok())
        .collect();
    let [user, system, children_user, children_system] = fields[..] else { return None };
    Some(ProcessTimes { own: user + system, ended_children: children_user + children_system })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_process_is_as_old_as_its_time_and_grows_older() {
        let before = age().unwrap();
        // Other tests of this process may have run before, but not for a day.
        assert!(before < 86_400 * 1_000_000_000, "{before}");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(30) {
            std::thread::yield_now();
        }
        let grown = age().unwrap() - before;
        assert!((20_000_000..10_000_000_000).contains(&grown), "{grown}");
    }

    /// The workers of a data loader, for instance, do not count as other processes on the rank's cores.
    #[test]
    fn processor_time_of_children_counts_as_this_process() {
        let burn = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; read line";
        let mut child = std::process::Command::new("sh")
            .args(["-c", burn])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while children_ran(&tasks()) == 0 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let alive = children_ran(&tasks());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(alive > 0);
        assert!(children_ran(&tasks()) >= alive, "the time of an ended child still counts");
    }
}
