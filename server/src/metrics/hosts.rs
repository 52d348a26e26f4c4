//! The families of the ranks' hosts (`paceline_host_*`), for the measures that each host reports.

use wire::usage::Usage;

use super::family::{Family, Values};

pub(super) const FAMILIES: &[Family] = &[
    host(
        Usage::ProcessorUse,
        "paceline_host_processor_use_cores",
        "Cores that the rank's process and its children kept busy in the last second.",
    ),
    host(
        Usage::OtherProcesses,
        "paceline_host_other_processes_ratio",
        "Share of the time of the rank's cores that other processes used, other ranks included.",
    ),
    host(
        Usage::RunQueueWait,
        "paceline_host_run_queue_wait_threads",
        "Mean number of the rank's threads that were ready and that no core ran, without those stopped by a CPU limit.",
    ),
    host(
        Usage::ProcessorThrottled,
        "paceline_host_processor_throttled_ratio",
        "Share of time in which the CPU limit of its cgroup kept the rank from running.",
    ),
    host(
        Usage::StolenTime,
        "paceline_host_stolen_ratio",
        "Share of the time of the rank's cores that the hypervisor took.",
    ),
    host(
        Usage::ContextSwitches,
        "paceline_host_context_switches_per_second",
        "Context switches of the rank's process per second.",
    ),
    host(
        Usage::MajorFaults,
        "paceline_host_major_page_faults_per_second",
        "Page faults of the rank's process per second that read from a disk.",
    ),
    host(Usage::ResidentMemory, "paceline_host_resident_bytes", "Memory of the rank's process in RAM."),
    host(
        Usage::HostMemory,
        "paceline_host_memory_used_ratio",
        "Share of the host's memory, or of the memory limit of the rank's cgroup, that is in use.",
    ),
    host(
        Usage::DiskReads,
        "paceline_host_disk_read_bytes_per_second",
        "Bytes that the rank's process read from disks per second.",
    ),
    host(
        Usage::DiskWrites,
        "paceline_host_disk_written_bytes_per_second",
        "Bytes that the rank's process wrote to disks per second.",
    ),
    host(
        Usage::NetworkTraffic,
        "paceline_host_network_bytes_per_second",
        "Bytes sent and received per second over the network interfaces of the rank's host or container.",
    ),
    host(
        Usage::RdmaTraffic,
        "paceline_host_rdma_bytes_per_second",
        "Bytes sent and received per second over the active RDMA ports (InfiniBand, RoCE) of the rank's host.",
    ),
    host(
        Usage::CpuPressure,
        "paceline_host_cpu_pressure_ratio",
        "Share of time in which some task of the rank's cgroup or host waited for a processor (PSI).",
    ),
    host(
        Usage::MemoryPressure,
        "paceline_host_memory_pressure_ratio",
        "Share of time in which some task of the rank's cgroup or host waited for memory (PSI).",
    ),
    host(
        Usage::IoPressure,
        "paceline_host_io_pressure_ratio",
        "Share of time in which some task of the rank's cgroup or host waited for a disk (PSI).",
    ),
];

const fn host(measure: Usage, name: &'static str, help: &'static str) -> Family {
    Family { name, help, labels: &["rank"], values: Values::Host(measure) }
}
