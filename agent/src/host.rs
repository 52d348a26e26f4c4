//! Samples of the host, once per second: how long this process's threads waited for a core, what else ran on its cores,
//! what the hypervisor stole, and what the CPU limit of its cgroup cost.
//!
//! The counters are Linux's, from `/proc` and the cgroup file system (proc(5); "Control Group v2" of the kernel's
//! documentation). This module reads them without the `procfs` crate, which drops the core numbers and thereby confuses
//! cores if one is offline. A figure that cannot be read is left out of the sample.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity};
use wire::clock::MonoNanos;
use wire::host::{HostFigure, HostSample};

use crate::clock;

/// The interval between samples,
const EVERY: Duration = Duration::from_secs(1);
/// which grows if sampling takes more than this share of a processor: a process may have hundreds of threads.
const BUDGET: f64 = 0.001;
/// The largest number of threads and of descendants that are read.
const MAX_TASKS: usize = 1_024;

/// A sampler of the host, owned by the drain thread.
pub(crate) struct HostSampler {
    cgroup: Option<Cgroup>,
    before: Option<Counters>,
    next: Instant,
}

impl HostSampler {
    pub(crate) fn new() -> Self {
        Self { cgroup: Cgroup::of_this_process(), before: None, next: Instant::now() }
    }

    /// Returns a sample if it is time for one. The first call starts the first interval.
    pub(crate) fn sample(&mut self) -> Option<HostSample> {
        (Instant::now() >= self.next).then(|| self.sample_now())?
    }

    /// Returns a sample of the time since the last one.
    pub(crate) fn sample_now(&mut self) -> Option<HostSample> {
        let cpu = clock::thread_cpu_nanos();
        let counters = Counters::read(self.cgroup.as_ref());
        let cost = Duration::from_nanos(clock::thread_cpu_nanos().saturating_sub(cpu));
        self.next = Instant::now() + EVERY.max(cost.div_f64(BUDGET));
        let sample = self.before.as_ref().and_then(|before| counters.since(before));
        self.before = Some(counters);
        sample
    }
}

/// The counters at one time, in nanoseconds.
struct Counters {
    at: MonoNanos,
    cores: Vec<usize>,
    ran: u64,
    /// The run-queue wait of each thread. A sum over threads would fall when one ends.
    waited: BTreeMap<u32, u64>,
    usage: Option<Usage>,
    throttled: Option<u64>,
}

impl Counters {
    fn read(cgroup: Option<&Cgroup>) -> Self {
        let cores = cores();
        let tasks = tasks();
        Self {
            at: clock::now(),
            ran: clock::process_cpu_nanos() + children_ran(&tasks),
            waited: tasks.iter().filter_map(|&task| Some((task, run_delay(task)?))).collect(),
            usage: fs::read_to_string("/proc/stat").ok().and_then(|stat| Usage::parse(&stat, &cores)),
            throttled: cgroup.and_then(Cgroup::throttled),
            cores,
        }
    }

    /// Returns the differences since `before`; `None` if the process has moved to other cores.
    fn since(&self, before: &Self) -> Option<HostSample> {
        let interval = (self.at - before.at).unsigned_abs();
        if interval == 0 || self.cores.is_empty() || self.cores != before.cores {
            return None;
        }
        let waited = self.waited.iter().map(|(task, waited)| {
            // A new thread has waited since it began.
            waited.saturating_sub(before.waited.get(task).copied().unwrap_or(0))
        });
        let more = |after: u64, before: u64| after.saturating_sub(before);
        let mut figures = BTreeMap::from([
            (HostFigure::Interval, interval),
            (HostFigure::Capacity, interval * self.cores.len() as u64),
            (HostFigure::Ran, more(self.ran, before.ran)),
        ]);
        if !self.waited.is_empty() {
            figures.insert(HostFigure::Waited, waited.sum());
        }
        if let (Some(after), Some(before)) = (&self.usage, &before.usage) {
            figures.insert(HostFigure::Busy, more(after.busy, before.busy));
            figures.insert(HostFigure::Stolen, more(after.stolen, before.stolen));
        }
        if let (Some(after), Some(before)) = (self.throttled, before.throttled) {
            figures.insert(HostFigure::Throttled, more(after, before));
        }
        Some(HostSample { at: self.at, cores: list(&self.cores), figures })
    }
}

/// Returns the cores that the main thread may run on. They are the cores of the process, unless it pins its threads
/// individually.
fn cores() -> Vec<usize> {
    let set = sched_getaffinity(Some(getpid())).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

/// Formats cores as Linux lists them: `0-3,8`.
fn list(cores: &[usize]) -> String {
    let ranges = cores.chunk_by(|before, after| before + 1 == *after).map(|range| match range {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// Returns the threads of this process.
fn tasks() -> Vec<u32> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MAX_TASKS).collect()
}

/// Returns how long a thread was ready to run and did not, in nanoseconds: the second number of its `schedstat`.
fn run_delay(task: u32) -> Option<u64> {
    let schedstat = fs::read_to_string(format!("/proc/self/task/{task}/schedstat")).ok()?;
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the processor time of all descendants, such as a data loader's workers, in nanoseconds. It includes living
/// descendants, and ended ones whose parent waited for them.
fn children_ran(tasks: &[u32]) -> u64 {
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

fn nanos_per_tick() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// The use of some cores since the machine started, in nanoseconds.
#[derive(Debug, PartialEq)]
struct Usage {
    busy: u64,
    stolen: u64,
}

impl Usage {
    /// Parses the lines `cpuN user nice system idle iowait irq softirq steal ...` of `/proc/stat`; `None` unless all of
    /// `cores` have one. `user` already includes the time of guests.
    fn parse(stat: &str, cores: &[usize]) -> Option<Self> {
        let mut ticks = (0, 0);
        let mut found = 0;
        for line in stat.lines() {
            let mut fields = line.split_whitespace();
            // The first line, without a number, is the sum over all cores.
            let core = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            if core.is_none_or(|core| cores.binary_search(&core).is_err()) {
                continue;
            }
            let counts: Vec<u64> = fields.filter_map(|count| count.parse().ok()).collect();
            let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = counts[..] else { continue };
            ticks = (ticks.0 + user + nice + system + irq + softirq, ticks.1 + steal);
            found += 1;
        }
        let nanos = nanos_per_tick();
        (found == cores.len()).then_some(Self { busy: ticks.0 * nanos, stolen: ticks.1 * nanos })
    }
}

/// The cgroup whose CPU limit applies to this process: the file that counts what the limit costs.
struct Cgroup {
    file: PathBuf,
}

impl Cgroup {
    fn of_this_process() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let files = candidates(&groups);
        files.into_iter().map(|file| Self { file }).find(|group| group.throttled().is_some())
    }

    fn throttled(&self) -> Option<u64> {
        throttled(&fs::read_to_string(&self.file).ok()?)
    }
}

/// Returns the possible paths of the file, from the lines `number:controllers:path` of `/proc/self/cgroup`. A container
/// may see its own cgroup as the root.
fn candidates(groups: &str) -> Vec<PathBuf> {
    let lines = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?.trim_start_matches('/')))
    });
    let files = lines.filter(|(controllers, _)| {
        controllers.is_empty() || controllers.split(',').any(|controller| controller == "cpu")
    });
    files
        .flat_map(|(controllers, path)| {
            let root = PathBuf::from("/sys/fs/cgroup").join(controllers);
            [root.join(path).join("cpu.stat"), root.join("cpu.stat")]
        })
        .collect()
}

/// Parses the throttled time in `cpu.stat` of either version of cgroups, in nanoseconds.
fn throttled(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let value: u64 = value.trim().parse().ok()?;
        match name {
            "throttled_usec" => Some(value.saturating_mul(1_000)),
            "throttled_time" => Some(value),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_listed_as_linux_lists_them() {
        assert_eq!(list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(list(&[5]), "5");
    }

    #[test]
    fn only_the_cores_of_the_process_count() {
        let stat =
            "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 10 0 5 100 7 1 2 3 0 0\ncpu2 20 1 0 50 0 0 0 4 9 0\nintr 99\n";
        let tick = nanos_per_tick();
        assert_eq!(Usage::parse(stat, &[0, 2]), Some(Usage { busy: 39 * tick, stolen: 7 * tick }));
        assert_eq!(Usage::parse(stat, &[2]), Some(Usage { busy: 21 * tick, stolen: 4 * tick }));
        assert_eq!(Usage::parse(stat, &[0, 1]), None, "core 1 is offline");
        assert_eq!(Usage::parse("cpu0 1 2\n", &[0]), None);
    }

    #[test]
    fn a_limit_is_found_in_either_version_of_cgroups() {
        let of =
            |text| candidates(text).into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(
            of("0::/kubepods/pod1\n"),
            ["/sys/fs/cgroup/kubepods/pod1/cpu.stat", "/sys/fs/cgroup/cpu.stat"]
        );
        assert_eq!(
            of("5:memory:/a\n4:cpu,cpuacct:/b\n"),
            ["/sys/fs/cgroup/cpu,cpuacct/b/cpu.stat", "/sys/fs/cgroup/cpu,cpuacct/cpu.stat"]
        );
        assert_eq!(throttled("nr_periods 5\nthrottled_usec 12\n"), Some(12_000));
        assert_eq!(throttled("nr_throttled 1\nthrottled_time 12\n"), Some(12));
        assert_eq!(throttled("usage_usec 9\n"), None);
    }

    #[test]
    fn this_kernel_provides_every_figure_except_perhaps_throttling() {
        let mut sampler = HostSampler::new();
        assert_eq!(sampler.sample_now(), None, "there is no interval yet");
        let sample = sampler.sample_now().unwrap();
        let throttled = HostFigure::Throttled;
        let known = HostFigure::ALL.into_iter().filter(|&figure| figure != throttled);
        assert!(known.into_iter().all(|figure| sample.get(figure).is_some()), "{sample:?}");
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
