//! The metrics of the ranks' hosts (`paceline_host_*`), for the measures that each host reports.

use prometheus::{GaugeVec, Opts};
use wire::usage::Usage;

use super::Families;
use super::ranks::RankGauge;

/// The gauges of hosts: the measure, the gauge's name and its help.
const MEASURES: [(Usage, &str, &str); 16] = [
    (
        Usage::ProcessorUse,
        "paceline_host_processor_use_cores",
        "Cores that the rank's process and its children kept busy in the last second.",
    ),
    (
        Usage::OtherProcesses,
        "paceline_host_other_processes_ratio",
        "Share of the time of the rank's cores that other processes used, other ranks included.",
    ),
    (
        Usage::RunQueueWait,
        "paceline_host_run_queue_wait_threads",
        "Mean number of the rank's threads that were ready and that no core ran, without those stopped by a CPU limit.",
    ),
    (
        Usage::ProcessorThrottled,
        "paceline_host_processor_throttled_ratio",
        "Share of time in which the CPU limit of its cgroup kept the rank from running.",
    ),
    (
        Usage::StolenTime,
        "paceline_host_stolen_ratio",
        "Share of the time of the rank's cores that the hypervisor took.",
    ),
    (
        Usage::ContextSwitches,
        "paceline_host_context_switches_per_second",
        "Context switches of the rank's process per second.",
    ),
    (
        Usage::MajorFaults,
        "paceline_host_major_page_faults_per_second",
        "Page faults of the rank's process per second that read from a disk.",
    ),
    (Usage::ResidentMemory, "paceline_host_resident_bytes", "Memory of the rank's process in RAM."),
    (
        Usage::HostMemory,
        "paceline_host_memory_used_ratio",
        "Share of the host's memory, or of the memory limit of the rank's cgroup, that is in use.",
    ),
    (
        Usage::DiskReads,
        "paceline_host_disk_read_bytes_per_second",
        "Bytes that the rank's process read from disks per second.",
    ),
    (
        Usage::DiskWrites,
        "paceline_host_disk_written_bytes_per_second",
        "Bytes that the rank's process wrote to disks per second.",
    ),
    (
        Usage::NetworkTraffic,
        "paceline_host_network_bytes_per_second",
        "Bytes sent and received per second over the network interfaces of the rank's host or container.",
    ),
    (
        Usage::RdmaTraffic,
        "paceline_host_rdma_bytes_per_second",
        "Bytes sent and received per second over the active RDMA ports (InfiniBand, RoCE) of the rank's host.",
    ),
    (
        Usage::CpuPressure,
        "paceline_host_cpu_pressure_ratio",
        "Share of time in which some task of the rank's cgroup or host waited for a processor (PSI).",
    ),
    (
        Usage::MemoryPressure,
        "paceline_host_memory_pressure_ratio",
        "Share of time in which some task of the rank's cgroup or host waited for memory (PSI).",
    ),
    (
        Usage::IoPressure,
        "paceline_host_io_pressure_ratio",
        "Share of time in which some task of the rank's cgroup or host waited for a disk (PSI).",
    ),
];

/// The gauges of hosts, by run and rank.
#[derive(Clone)]
pub(super) struct HostMetrics {
    measures: Vec<(Usage, RankGauge)>,
}

impl HostMetrics {
    pub(super) fn new(families: &mut Families) -> Self {
        let mut gauge = |name: &str, help: &str| {
            let gauge = GaugeVec::new(Opts::new(name, help), &["run", "rank"]);
            RankGauge::new(families.add(gauge.expect("the name and labels are valid")))
        };
        Self { measures: MEASURES.map(|(usage, name, help)| (usage, gauge(name, help))).into() }
    }

    /// Sets the gauges from the newest sample of each host, by rank.
    pub(super) fn observe(&self, id: &str, samples: &[(usize, Vec<(Usage, f32)>)]) {
        for (usage, gauge) in &self.measures {
            let value = |sample: &[(Usage, f32)]| {
                sample.iter().find(|(one, _)| one == usage).map(|(_, value)| *value)
            };
            gauge.set(id, samples.iter().filter_map(|(rank, sample)| Some((*rank, value(sample)?.into()))));
        }
    }

    pub(super) fn gauges(&self) -> impl Iterator<Item = &RankGauge> {
        self.measures.iter().map(|(_, gauge)| gauge)
    }
}
