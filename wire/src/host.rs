//! Samples of a host: how much of its cores other processes use, what keeps the rank's process from running, and what the
//! process takes of memory, disk and network.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::MonoNanos;

/// A figure of a [`HostSample`]. A kernel or a container may not provide all of them. Those up to [`Self::IoPressure`]
/// are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum HostFigure {
    /// The length of the interval that the sample covers.
    Interval = 0,
    /// The time that the process's cores had to offer: the interval times the number of cores.
    Capacity = 1,
    /// The processor time of the process and its children, on any core.
    Ran = 2,
    /// The time in which the process's threads were ready to run and no core ran them (`run_delay` of Linux's
    /// `schedstat`), summed over threads.
    Waited = 3,
    /// The time in which the process's cores ran anything, this process included.
    Busy = 4,
    /// The time in which the hypervisor ran something else on the process's cores (*steal*).
    Stolen = 5,
    /// The time in which the CPU limit of the process's cgroup kept its threads from running.
    Throttled = 6,
    /// The time in which some task waited for a processor (PSI, `some`). This and the other pressure is that of the process's
    /// cgroup if it is known there, else that of the host.
    CpuPressure = 7,
    /// The time in which some task waited for memory to be reclaimed or read back (PSI, `some`).
    MemoryPressure = 8,
    /// The time in which some task waited for a disk (PSI, `some`).
    IoPressure = 9,
    /// How often a thread of the process gave up its core because it had to wait, as a count over the interval.
    VoluntarySwitches = 10,
    /// How often a core was taken from a thread of the process, as a count over the interval.
    InvoluntarySwitches = 11,
    /// The page faults of the process that needed no disk, as a count over the interval.
    MinorFaults = 12,
    /// The page faults of the process that read from a disk, as a count over the interval.
    MajorFaults = 13,
    /// The bytes that the process and its ended children caused to be read from disks in the interval.
    DiskReadBytes = 14,
    /// The bytes that the process and its ended children caused to be written to disks in the interval.
    DiskWrittenBytes = 15,
    /// The bytes sent in the interval over all network interfaces but the loopback, by all processes of the network namespace.
    /// RDMA bypasses these counters: see [`Self::RdmaSentBytes`].
    NetworkSentBytes = 16,
    /// The bytes received in the interval, counted in the same way.
    NetworkReceivedBytes = 17,
    /// The memory of the process that is in RAM at the end of the interval, in bytes.
    ResidentBytes = 18,
    /// The memory that the process could still get at the end of the interval, in bytes: what the host has available, or
    /// what the memory limit of its cgroup leaves, whichever is less.
    MemoryAvailableBytes = 19,
    /// The memory of the host, or the memory limit of the process's cgroup if that is less, in bytes.
    MemoryTotalBytes = 20,
    /// The time since the process began, at the end of the interval, in nanoseconds.
    ProcessAge = 21,
    /// The bytes sent in the interval over the host's active RDMA ports (InfiniBand, RoCE), by all processes of the host.
    RdmaSentBytes = 22,
    /// The bytes received in the interval, counted in the same way.
    RdmaReceivedBytes = 23,
    /// The part of [`Self::Waited`] that is the main thread's, in nanoseconds. Known where this thread trains, as in PyTorch jobs.
    MainWaited = 24,
    /// The part of [`Self::ResidentBytes`] that the process shares with files or other processes: pages of mapped files, which the kernel
    /// can drop, and shared memory.
    SharedBytes = 25,
}

impl HostFigure {
    /// All figures, in the order of their codes.
    pub const ALL: [Self; 26] = [
        Self::Interval,
        Self::Capacity,
        Self::Ran,
        Self::Waited,
        Self::Busy,
        Self::Stolen,
        Self::Throttled,
        Self::CpuPressure,
        Self::MemoryPressure,
        Self::IoPressure,
        Self::VoluntarySwitches,
        Self::InvoluntarySwitches,
        Self::MinorFaults,
        Self::MajorFaults,
        Self::DiskReadBytes,
        Self::DiskWrittenBytes,
        Self::NetworkSentBytes,
        Self::NetworkReceivedBytes,
        Self::ResidentBytes,
        Self::MemoryAvailableBytes,
        Self::MemoryTotalBytes,
        Self::ProcessAge,
        Self::RdmaSentBytes,
        Self::RdmaReceivedBytes,
        Self::MainWaited,
        Self::SharedBytes,
    ];
    /// How the time of the process's cores was spent, in nanoseconds, in the order of their codes.
    pub const OF_CORES: [Self; 7] =
        [Self::Interval, Self::Capacity, Self::Ran, Self::Waited, Self::Busy, Self::Stolen, Self::Throttled];
}

/// A sample of the host from one rank's process. It covers an interval of about a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSample {
    /// The end of the interval, on the rank's clock.
    pub at: MonoNanos,
    /// The cores that the process may run on, as Linux lists them: `0-3,8`.
    pub cores: String,
    /// The figures that are known.
    pub figures: BTreeMap<HostFigure, u64>,
}

impl HostSample {
    /// Returns one figure; `None` if it is unknown.
    #[must_use]
    pub fn get(&self, figure: HostFigure) -> Option<u64> {
        self.figures.get(&figure).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Note;

    /// Sealed segments store notes as JSON.
    #[test]
    fn a_sample_round_trips_through_json() {
        let figures = HostFigure::ALL.into_iter().map(|figure| (figure, u64::MAX - figure as u64)).collect();
        let note = Note::Host(HostSample { at: MonoNanos(-7), cores: "0-1".into(), figures });
        let json = serde_json::to_string(&note).unwrap();
        assert!(json.contains("\"throttled\":18446744073709551609"), "{json}");
        assert_eq!(serde_json::from_str::<Note>(&json).unwrap(), note);
    }
}
