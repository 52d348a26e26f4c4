//! The cores that this process may run on, and what ran on them.
//!
//! `/proc/stat` is read without the `procfs` crate, which drops the core numbers and thereby confuses cores if one is offline.

use std::fs;

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::nanos_per_tick;

/// Returns the cores that the main thread may run on. They are the cores of the process, unless it pins its threads
/// individually.
pub(super) fn cores() -> Vec<usize> {
    let set = sched_getaffinity(Some(getpid())).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

/// Formats cores as Linux lists them: `0-3,8`.
pub(super) fn list(cores: &[usize]) -> String {
    let ranges = cores.chunk_by(|before, after| before + 1 == *after).map(|range| match range {
        [core] => core.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// The use of some cores since the machine started, in nanoseconds.
#[derive(Debug, PartialEq)]
pub(super) struct Usage {
    pub busy: u64,
    pub stolen: u64,
}

impl Usage {
    /// Reads the use of `cores` so far.
    pub fn read(cores: &[usize]) -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?, cores)
    }

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
}
