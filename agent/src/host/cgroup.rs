//! The cgroups of this process: what their CPU limit costs, how much memory they leave, and their pressure ("Control Group v1"
//! and "v2" of the kernel's documentation).

use std::fs;
use std::path::{Path, PathBuf};

/// Where systems mount cgroup v2: alone, or beside version 1.
const V2_ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Where systems mount the controllers of version 1, each in a folder of its own.
const V1_ROOT: &str = "/sys/fs/cgroup";

/// The files of the cgroups that apply to this process.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    /// The file that counts what the CPU limit costs.
    cpu: Option<PathBuf>,
    /// The folders that can have a memory limit: the process's cgroup and those that it lies in. A limit may be set at any time.
    memory: Vec<PathBuf>,
    /// The folder of version 2, which has the pressure.
    pressure: Option<PathBuf>,
}

impl Cgroups {
    pub fn find() -> Self {
        let Ok(groups) = fs::read_to_string("/proc/self/cgroup") else { return Self::default() };
        let throttled =
            |folder: PathBuf| Some(folder.join("cpu.stat")).filter(|file| throttled_in(file).is_some());
        let has_pressure = |folder: &PathBuf| folder.join("cpu.pressure").is_file();
        Self {
            cpu: folders(&groups, "cpu").into_iter().find_map(throttled),
            memory: folders(&groups, "memory").into_iter().filter(|folder| can_limit(folder)).collect(),
            pressure: folders(&groups, "").into_iter().find(has_pressure),
        }
    }

    /// Returns the time that the CPU limit has cost so far, in nanoseconds.
    pub fn throttled(&self) -> Option<u64> {
        throttled_in(self.cpu.as_ref()?)
    }

    /// Returns the tightest memory limit, and the least that a limit leaves, in bytes. Pages of files that are not in use count as
    /// left, because the kernel reclaims them.
    pub fn memory(&self) -> Option<(u64, u64)> {
        let limits = self.memory.iter().filter_map(|folder| left(folder));
        limits.reduce(|tightest, limit| (tightest.0.min(limit.0), tightest.1.min(limit.1)))
    }

    /// Returns the file of a pressure, such as `cpu`: that of the cgroup, or of the host.
    pub fn pressure(&self, resource: &str) -> PathBuf {
        match &self.pressure {
            Some(folder) => folder.join(format!("{resource}.pressure")),
            None => Path::new("/proc/pressure").join(resource),
        }
    }
}

fn throttled_in(file: &Path) -> Option<u64> {
    throttled(&fs::read_to_string(file).ok()?)
}

/// Returns the possible folders of this process's cgroup with a controller, and of those that it lies in, from the lines
/// `number:controllers:path` of `/proc/self/cgroup`. The line of version 2 names no controller and stands for all. A container
/// may see its own cgroup as the root.
fn folders(groups: &str, controller: &str) -> Vec<PathBuf> {
    let lines = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?.trim_start_matches('/')))
    });
    let found = lines.flat_map(|(controllers, path)| {
        let roots: Vec<PathBuf> = match controllers {
            "" => V2_ROOTS.map(PathBuf::from).into(),
            _ if controllers.split(',').any(|name| name == controller) => {
                vec![Path::new(V1_ROOT).join(controllers)]
            }
            _ => Vec::new(),
        };
        roots
            .into_iter()
            .flat_map(move |root| Path::new(path).ancestors().map(|part| root.join(part)).collect::<Vec<_>>())
    });
    found.collect()
}

/// Parses the throttled time in `cpu.stat` of either version of cgroups, in nanoseconds.
fn throttled(stat: &str) -> Option<u64> {
    value(stat, "throttled_usec")
        .map(|micros| micros.saturating_mul(1_000))
        .or_else(|| value(stat, "throttled_time"))
}

/// Returns the value of a line `name value`.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Returns true for a folder of either version that has a file for the memory limit.
fn can_limit(folder: &Path) -> bool {
    ["memory.max", "memory.limit_in_bytes"].iter().any(|file| folder.join(file).is_file())
}

/// Returns the memory limit of a cgroup of either version, and what it leaves, in bytes; `None` without a limit.
fn left(folder: &Path) -> Option<(u64, u64)> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let stat = || fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let (limit, used, idle) = match number("memory.max") {
        Some(limit) => (limit, number("memory.current")?, value(&stat(), "inactive_file ")),
        None => {
            // Version 1 writes the largest number of pages for "no limit".
            let limit = number("memory.limit_in_bytes").filter(|limit| *limit < 1 << 60)?;
            (limit, number("memory.usage_in_bytes")?, value(&stat(), "total_inactive_file "))
        }
    };
    Some((limit, limit.saturating_sub(used.saturating_sub(idle.unwrap_or(0)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(groups: &str, controller: &str) -> Vec<String> {
        folders(groups, controller).into_iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn the_cgroup_is_found_in_either_version_with_those_that_it_lies_in() {
        assert_eq!(
            listed("0::/kubepods/pod1\n", "cpu"),
            [
                "/sys/fs/cgroup/kubepods/pod1",
                "/sys/fs/cgroup/kubepods",
                "/sys/fs/cgroup/",
                "/sys/fs/cgroup/unified/kubepods/pod1",
                "/sys/fs/cgroup/unified/kubepods",
                "/sys/fs/cgroup/unified/"
            ]
        );
        let groups = "5:memory:/a\n4:cpu,cpuacct:/b\n";
        assert_eq!(listed(groups, "cpu"), ["/sys/fs/cgroup/cpu,cpuacct/b", "/sys/fs/cgroup/cpu,cpuacct/"]);
        assert_eq!(listed(groups, "memory"), ["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory/"]);
        assert!(listed(groups, "").is_empty());
    }

    #[test]
    fn throttled_time_is_read_in_either_version() {
        assert_eq!(throttled("nr_periods 5\nthrottled_usec 12\n"), Some(12_000));
        assert_eq!(throttled("nr_throttled 1\nthrottled_time 12\n"), Some(12));
        assert_eq!(throttled("usage_usec 9\n"), None);
    }

    #[test]
    fn memory_that_the_kernel_can_reclaim_is_left() {
        let folder = std::env::temp_dir().join(format!("paceline-cgroup-{}", std::process::id()));
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        fs::create_dir_all(&folder).unwrap();
        write("memory.max", "max\n");
        let cgroups = Cgroups { memory: vec![folder.clone()], ..Cgroups::default() };
        assert_eq!((left(&folder), cgroups.memory(), can_limit(&folder)), (None, None, true));
        write("memory.max", "1000\n");
        write("memory.current", "700\n");
        write("memory.stat", "anon 500\ninactive_file 200\n");
        assert_eq!(left(&folder), Some((1_000, 500)));
        assert_eq!(cgroups.memory(), Some((1_000, 500)), "the limit was set later");
        fs::remove_file(folder.join("memory.max")).unwrap();
        write("memory.limit_in_bytes", "9223372036854771712\n");
        write("memory.usage_in_bytes", "700\n");
        assert_eq!(left(&folder), None);
        write("memory.limit_in_bytes", "600\n");
        write("memory.stat", "inactive_file 9\ntotal_inactive_file 50\n");
        assert_eq!(left(&folder), Some((600, 0)), "the limit was lowered below what is in use");
        fs::remove_dir_all(&folder).unwrap();
    }
}
