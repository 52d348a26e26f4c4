//! How the devices and the hosts of a job are used: the measures that are kept over time for every rank, each of which is one
//! figure of its samples or follows from some.

use serde::{Deserialize, Serialize};

use crate::device::{DeviceFigure, DeviceSample, throttle};
use crate::host::{HostFigure, HostSample};

/// A measure of how a rank's device or host is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Usage {
    /// The share of the last second in which some kernel ran. A kernel that waits in a collective counts as running.
    DeviceBusy = 0,
    /// The share of time in which a multiprocessor had work, as the mean over all multiprocessors.
    SmActivity,
    /// The share of time in which tensor cores worked.
    TensorActivity,
    /// The share of the device's memory bandwidth in use.
    DramActivity,
    /// The clock of the multiprocessors.
    SmClock,
    /// 1 while the clock is lowered because of power, temperature or a hardware limit, else 0.
    DeviceThrottled,
    /// The power that the device draws.
    Power,
    /// The temperature of the chip.
    Temperature,
    /// The share of the device's memory in use.
    DeviceMemory,
    /// The memory in use by tensors (PyTorch's allocator).
    AllocatedMemory,
    /// The rate of data sent and received over PCIe.
    PcieTraffic,
    /// The rate of data sent and received over all NVLinks.
    NvlinkTraffic,
    /// The number of critical errors (Xid) and of uncorrected memory errors so far.
    DeviceErrors,
    /// The processor time of the process and its children per second: the number of cores that they keep busy.
    ProcessorUse,
    /// The share of its cores' time that other processes use, whatever they are: other ranks on the same cores as well.
    OtherProcesses,
    /// The time per second in which threads of the process were ready and no core ran them, less the time lost to the CPU
    /// limit, summed over threads: the mean number of threads that wait. An upper bound if the limit stops several threads at once,
    /// because the kernel counts that time once.
    RunQueueWait,
    /// The share of time in which the CPU limit of the cgroup kept the process from running.
    ProcessorThrottled,
    /// The share of its cores' time that the hypervisor took.
    StolenTime,
    /// Context switches per second, voluntary or not.
    ContextSwitches,
    /// Page faults per second that read from a disk.
    MajorFaults,
    /// The memory of the process in RAM.
    ResidentMemory,
    /// The share of the host's memory, or of the cgroup's memory limit, that is in use.
    HostMemory,
    /// The rate at which the process reads from disks.
    DiskReads,
    /// The rate at which the process writes to disks.
    DiskWrites,
    /// The rate of data sent and received over the network interfaces of the host or container.
    NetworkTraffic,
    /// The rate of data sent and received over the host's RDMA ports (InfiniBand, RoCE).
    RdmaTraffic,
    /// The share of time in which some task waited for a processor (PSI).
    CpuPressure,
    /// The share of time in which some task waited for memory (PSI).
    MemoryPressure,
    /// The share of time in which some task waited for a disk (PSI).
    IoPressure,
}

/// The unit of a [`Usage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageUnit {
    /// A share from 0 to 1.
    Share,
    /// Cores: seconds of processor time per second.
    Cores,
    /// Threads: seconds of waiting per second, summed over threads.
    Threads,
    /// Hertz.
    Hertz,
    /// Watts.
    Watts,
    /// Degrees Celsius.
    Celsius,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Events per second.
    PerSecond,
    /// A count.
    Count,
}

impl UsageUnit {
    /// Returns the name used in exports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Cores => "cores",
            Self::Threads => "threads",
            Self::Hertz => "hertz",
            Self::Watts => "watts",
            Self::Celsius => "celsius",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes_per_second",
            Self::PerSecond => "per_second",
            Self::Count => "count",
        }
    }
}

impl Usage {
    /// All measures, those of devices first, in the order in which the dashboard shows them.
    pub const ALL: [Self; 29] = [
        Self::DeviceBusy,
        Self::SmActivity,
        Self::TensorActivity,
        Self::DramActivity,
        Self::SmClock,
        Self::DeviceThrottled,
        Self::Power,
        Self::Temperature,
        Self::DeviceMemory,
        Self::AllocatedMemory,
        Self::PcieTraffic,
        Self::NvlinkTraffic,
        Self::DeviceErrors,
        Self::ProcessorUse,
        Self::OtherProcesses,
        Self::RunQueueWait,
        Self::ProcessorThrottled,
        Self::StolenTime,
        Self::ContextSwitches,
        Self::MajorFaults,
        Self::ResidentMemory,
        Self::HostMemory,
        Self::DiskReads,
        Self::DiskWrites,
        Self::NetworkTraffic,
        Self::RdmaTraffic,
        Self::CpuPressure,
        Self::MemoryPressure,
        Self::IoPressure,
    ];

    /// Returns true for a measure of the rank's device, false for one of its host.
    #[must_use]
    pub fn is_of_device(self) -> bool {
        self <= Self::DeviceErrors
    }

    /// Returns true if a small value is the one to see: a device or a processor that is idle or slow.
    #[must_use]
    pub fn is_worse_if_low(self) -> bool {
        matches!(
            self,
            Self::DeviceBusy
                | Self::SmActivity
                | Self::TensorActivity
                | Self::DramActivity
                | Self::SmClock
                | Self::Power
                | Self::ProcessorUse
        )
    }

    /// Returns the name used on the dashboard.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DeviceBusy => "device busy",
            Self::SmActivity => "SM activity",
            Self::TensorActivity => "tensor-core activity",
            Self::DramActivity => "DRAM activity",
            Self::SmClock => "SM clock",
            Self::DeviceThrottled => "device throttled",
            Self::Power => "power",
            Self::Temperature => "temperature",
            Self::DeviceMemory => "device memory",
            Self::AllocatedMemory => "allocated by PyTorch",
            Self::PcieTraffic => "PCIe traffic",
            Self::NvlinkTraffic => "NVLink traffic",
            Self::DeviceErrors => "device errors",
            Self::ProcessorUse => "processor use",
            Self::OtherProcesses => "other processes",
            Self::RunQueueWait => "run-queue wait",
            Self::ProcessorThrottled => "processor throttled",
            Self::StolenTime => "stolen time",
            Self::ContextSwitches => "context switches",
            Self::MajorFaults => "major page faults",
            Self::ResidentMemory => "resident memory",
            Self::HostMemory => "host memory",
            Self::DiskReads => "disk reads",
            Self::DiskWrites => "disk writes",
            Self::NetworkTraffic => "network traffic",
            Self::RdmaTraffic => "RDMA traffic",
            Self::CpuPressure => "CPU pressure",
            Self::MemoryPressure => "memory pressure",
            Self::IoPressure => "I/O pressure",
        }
    }

    /// Returns the unit of the values.
    #[must_use]
    pub fn unit(self) -> UsageUnit {
        match self {
            Self::DeviceBusy
            | Self::SmActivity
            | Self::TensorActivity
            | Self::DramActivity
            | Self::DeviceThrottled
            | Self::DeviceMemory
            | Self::OtherProcesses
            | Self::ProcessorThrottled
            | Self::StolenTime
            | Self::HostMemory
            | Self::CpuPressure
            | Self::MemoryPressure
            | Self::IoPressure => UsageUnit::Share,
            Self::ProcessorUse => UsageUnit::Cores,
            Self::RunQueueWait => UsageUnit::Threads,
            Self::SmClock => UsageUnit::Hertz,
            Self::Power => UsageUnit::Watts,
            Self::Temperature => UsageUnit::Celsius,
            Self::AllocatedMemory | Self::ResidentMemory => UsageUnit::Bytes,
            Self::PcieTraffic
            | Self::NvlinkTraffic
            | Self::DiskReads
            | Self::DiskWrites
            | Self::NetworkTraffic
            | Self::RdmaTraffic => UsageUnit::BytesPerSecond,
            Self::ContextSwitches | Self::MajorFaults => UsageUnit::PerSecond,
            Self::DeviceErrors => UsageUnit::Count,
        }
    }

    /// Returns the value in a sample of a device; `None` if the device does not report it.
    #[must_use]
    pub fn device_value(self, sample: &DeviceSample) -> Option<f32> {
        let get = |figure| sample.get(figure).map(|value| value as f64);
        let scaled = |figure, factor: f64| Some(get(figure)? * factor);
        let sum = |first, second, factor: f64| Some((get(first)? + get(second)?) * factor);
        let value = match self {
            Self::DeviceBusy => scaled(DeviceFigure::UtilizationPercent, 0.01),
            Self::SmActivity => scaled(DeviceFigure::SmActivityPermille, 0.001),
            Self::TensorActivity => scaled(DeviceFigure::TensorActivityPermille, 0.001),
            Self::DramActivity => scaled(DeviceFigure::DramActivityPermille, 0.001),
            Self::SmClock => scaled(DeviceFigure::SmClockMegahertz, 1e6),
            Self::DeviceThrottled => {
                let reasons = sample.get(DeviceFigure::ThrottleReasons)?;
                Some(if throttle::names(reasons).is_empty() { 0.0 } else { 1.0 })
            }
            Self::Power => scaled(DeviceFigure::PowerMilliwatts, 0.001),
            Self::Temperature => get(DeviceFigure::TemperatureCelsius),
            Self::DeviceMemory => {
                let total = get(DeviceFigure::MemoryTotalBytes).filter(|total| *total > 0.0)?;
                Some(get(DeviceFigure::MemoryUsedBytes)? / total)
            }
            Self::AllocatedMemory => get(DeviceFigure::AllocatedBytes),
            Self::PcieTraffic => sum(
                DeviceFigure::PcieSentKibibytesPerSecond,
                DeviceFigure::PcieReceivedKibibytesPerSecond,
                1024.0,
            ),
            Self::NvlinkTraffic => sum(
                DeviceFigure::NvlinkSentMebibytesPerSecond,
                DeviceFigure::NvlinkReceivedMebibytesPerSecond,
                1024.0 * 1024.0,
            ),
            Self::DeviceErrors => {
                let (xid, ecc) = (get(DeviceFigure::XidErrors), get(DeviceFigure::EccUncorrectedErrors));
                xid.or(ecc).map(|_| xid.unwrap_or(0.0) + ecc.unwrap_or(0.0))
            }
            _ => None,
        };
        value.map(|value| value as f32)
    }

    /// Returns the value in a sample of a host; `None` if the host does not report it.
    #[must_use]
    pub fn host_value(self, sample: &HostSample) -> Option<f32> {
        let get = |figure| sample.get(figure).map(|value| value as f64);
        let ratio = |value: Option<f64>, whole| {
            let whole = get(whole).filter(|whole| *whole > 0.0)?;
            Some(value? / whole)
        };
        let share = |figure| ratio(get(figure), HostFigure::Interval);
        let share_of_cores = |value| ratio(value, HostFigure::Capacity);
        let rate = |value| ratio(value, HostFigure::Interval).map(|per_nano| per_nano * 1e9);
        let sum = |first, second| Some(get(first)? + get(second)?);
        let value = match self {
            Self::ProcessorUse => share(HostFigure::Ran),
            Self::OtherProcesses => {
                let others = get(HostFigure::Busy).zip(get(HostFigure::Ran));
                share_of_cores(others.map(|(busy, own)| (busy - own).max(0.0)))
            }
            Self::RunQueueWait => {
                let throttled = get(HostFigure::Throttled).unwrap_or(0.0);
                ratio(
                    get(HostFigure::Waited).map(|waited| (waited - throttled).max(0.0)),
                    HostFigure::Interval,
                )
            }
            Self::ProcessorThrottled => share(HostFigure::Throttled),
            Self::StolenTime => share_of_cores(get(HostFigure::Stolen)),
            Self::ContextSwitches => {
                rate(sum(HostFigure::VoluntarySwitches, HostFigure::InvoluntarySwitches))
            }
            Self::MajorFaults => rate(get(HostFigure::MajorFaults)),
            Self::ResidentMemory => get(HostFigure::ResidentBytes),
            Self::HostMemory => {
                let total = get(HostFigure::MemoryTotalBytes).filter(|total| *total > 0.0)?;
                Some((1.0 - get(HostFigure::MemoryAvailableBytes)? / total).max(0.0))
            }
            Self::DiskReads => rate(get(HostFigure::DiskReadBytes)),
            Self::DiskWrites => rate(get(HostFigure::DiskWrittenBytes)),
            Self::NetworkTraffic => rate(sum(HostFigure::NetworkSentBytes, HostFigure::NetworkReceivedBytes)),
            Self::RdmaTraffic => rate(sum(HostFigure::RdmaSentBytes, HostFigure::RdmaReceivedBytes)),
            Self::CpuPressure => share(HostFigure::CpuPressure),
            Self::MemoryPressure => share(HostFigure::MemoryPressure),
            Self::IoPressure => share(HostFigure::IoPressure),
            _ => None,
        };
        value.map(|value| value as f32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::clock::MonoNanos;

    #[test]
    fn measures_are_listed_in_the_order_of_their_codes_and_their_names_differ() {
        assert!(
            Usage::ALL.is_sorted() && Usage::ALL.iter().enumerate().all(|(at, usage)| *usage as usize == at)
        );
        let names: BTreeMap<&str, Usage> =
            Usage::ALL.into_iter().map(|usage| (usage.name(), usage)).collect();
        assert_eq!(names.len(), Usage::ALL.len());
    }

    #[test]
    fn every_measure_is_of_a_device_or_of_a_host() {
        let at = MonoNanos(0);
        let figures = DeviceFigure::ALL.into_iter().map(|figure| (figure, 100)).collect();
        let device = DeviceSample { at, device: "a GPU".into(), figures };
        let figures = HostFigure::ALL.into_iter().map(|figure| (figure, 100)).collect();
        let host = HostSample { at, cores: "0".into(), figures };
        for usage in Usage::ALL {
            assert_eq!(usage.device_value(&device).is_some(), usage.is_of_device(), "{usage:?}");
            assert_eq!(usage.host_value(&host).is_some(), !usage.is_of_device(), "{usage:?}");
        }
    }

    #[test]
    fn a_second_of_a_throttled_process_is_read_as_shares_and_rates() {
        let second = 1_000_000_000;
        let figures = BTreeMap::from([
            (HostFigure::Interval, second),
            (HostFigure::Capacity, 2 * second),
            (HostFigure::Ran, second / 5),
            (HostFigure::Busy, second),
            // As in a cgroup with a limit of 20 %: nearly all of the wait is the limit's.
            (HostFigure::Waited, 800_000_000),
            (HostFigure::Throttled, 799_000_000),
            (HostFigure::NetworkSentBytes, 300),
            (HostFigure::NetworkReceivedBytes, 700),
            (HostFigure::RdmaSentBytes, 1_000_000),
            (HostFigure::RdmaReceivedBytes, 2_000_000),
            (HostFigure::MemoryTotalBytes, 1_000),
            (HostFigure::MemoryAvailableBytes, 250),
        ]);
        let sample = HostSample { at: MonoNanos(0), cores: "0-1".into(), figures };
        let value = |usage: Usage| usage.host_value(&sample).unwrap();
        assert_eq!((value(Usage::ProcessorUse), value(Usage::OtherProcesses)), (0.2, 0.4));
        assert_eq!((value(Usage::RunQueueWait), value(Usage::ProcessorThrottled)), (0.001, 0.799));
        assert_eq!((value(Usage::NetworkTraffic), value(Usage::HostMemory)), (1_000.0, 0.75));
        assert_eq!(value(Usage::RdmaTraffic), 3e6);
        assert_eq!(Usage::StolenTime.host_value(&sample), None, "not reported");
    }
}
