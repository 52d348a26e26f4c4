//! The families of the ranks' devices (`paceline_device_*`), for the figures that each device reports.

use wire::device::{DeviceFigure, throttle};

use super::RunValues;
use super::family::{ByRank, Family, Values};

pub(super) const FAMILIES: &[Family] = &[
    device(
        DeviceFigure::UtilizationPercent,
        1e-2,
        "paceline_device_utilization_ratio",
        "Share of the last second in which some kernel ran on the rank's device.",
    ),
    device(
        DeviceFigure::MemoryUsedBytes,
        1.0,
        "paceline_device_memory_used_bytes",
        "Memory in use on the rank's device.",
    ),
    device(
        DeviceFigure::MemoryTotalBytes,
        1.0,
        "paceline_device_memory_bytes",
        "Total memory of the rank's device.",
    ),
    device(
        DeviceFigure::PowerMilliwatts,
        1e-3,
        "paceline_device_power_watts",
        "Power drawn by the rank's device.",
    ),
    device(
        DeviceFigure::PowerLimitMilliwatts,
        1e-3,
        "paceline_device_power_limit_watts",
        "Power limit of the rank's device.",
    ),
    device(
        DeviceFigure::SmClockMegahertz,
        1e6,
        "paceline_device_sm_clock_hertz",
        "Clock of the streaming multiprocessors (SM) of the rank's device.",
    ),
    device(
        DeviceFigure::MemoryClockMegahertz,
        1e6,
        "paceline_device_memory_clock_hertz",
        "Memory clock of the rank's device.",
    ),
    device(
        DeviceFigure::TemperatureCelsius,
        1.0,
        "paceline_device_temperature_celsius",
        "Temperature of the rank's device.",
    ),
    device(
        DeviceFigure::EccUncorrectedErrors,
        1.0,
        "paceline_device_ecc_uncorrected_errors",
        "Uncorrected memory errors of the rank's device since its driver was loaded.",
    ),
    device(
        DeviceFigure::SmActivityPermille,
        1e-3,
        "paceline_device_sm_activity_ratio",
        "Share of time in which a streaming multiprocessor (SM) of the rank's device had work, mean over all SMs.",
    ),
    device(
        DeviceFigure::TensorActivityPermille,
        1e-3,
        "paceline_device_tensor_activity_ratio",
        "Share of time in which the tensor cores of the rank's device worked.",
    ),
    device(
        DeviceFigure::DramActivityPermille,
        1e-3,
        "paceline_device_dram_activity_ratio",
        "Share of the memory bandwidth of the rank's device that is in use.",
    ),
    device(
        DeviceFigure::ClockErrorBoundNanoseconds,
        1e-9,
        "paceline_device_clock_error_bound_seconds",
        "Error bound of times of the rank's device on the clock of its host.",
    ),
    device(
        DeviceFigure::NvlinkSentMebibytesPerSecond,
        1_048_576.0,
        "paceline_device_nvlink_sent_bytes_per_second",
        "Bytes sent per second over all NVLinks of the rank's device.",
    ),
    device(
        DeviceFigure::NvlinkReceivedMebibytesPerSecond,
        1_048_576.0,
        "paceline_device_nvlink_received_bytes_per_second",
        "Bytes received per second over all NVLinks of the rank's device.",
    ),
    device(
        DeviceFigure::XidErrors,
        1.0,
        "paceline_device_xid_errors",
        "Critical errors (Xid) of the rank's device since sampling began.",
    ),
    device(
        DeviceFigure::LastXid,
        1.0,
        "paceline_device_last_xid",
        "Number (Xid) of the last critical error of the rank's device.",
    ),
    device(
        DeviceFigure::AllocatedBytes,
        1.0,
        "paceline_device_memory_allocated_bytes",
        "Memory in use by tensors on the rank's device, as PyTorch's allocator counts it.",
    ),
    device(
        DeviceFigure::AllocatedPeakBytes,
        1.0,
        "paceline_device_memory_allocated_peak_bytes",
        "Largest memory in use by tensors on the rank's device, since PyTorch's peak statistics were last reset.",
    ),
    device(
        DeviceFigure::ReservedBytes,
        1.0,
        "paceline_device_memory_reserved_bytes",
        "Memory that PyTorch's allocator holds on the rank's device, in use or cached.",
    ),
    device(
        DeviceFigure::InactiveSplitBytes,
        1.0,
        "paceline_device_memory_inactive_split_bytes",
        "Cached memory in split blocks, which PyTorch's allocator cannot give back to the rank's device (fragmentation).",
    ),
    device(
        DeviceFigure::AllocationRetries,
        1.0,
        "paceline_device_allocation_retries",
        "Times that PyTorch's allocator ran out of memory on the rank's device and emptied its cache to try again.",
    ),
    device(
        DeviceFigure::OutOfMemoryErrors,
        1.0,
        "paceline_device_out_of_memory_errors",
        "Out-of-memory errors that PyTorch's allocator raised on the rank's device.",
    ),
    Family {
        name: "paceline_device_throttled",
        help: "1 if the rank's device reports that it lowered its clocks while it was busy, 0 if not.",
        labels: &["rank"],
        values: Values::Ranks(throttled),
    },
];

/// Returns the family of a figure. `factor` converts the figure to the family's unit.
const fn device(figure: DeviceFigure, factor: f64, name: &'static str, help: &'static str) -> Family {
    Family { name, help, labels: &["rank"], values: Values::Device { figure, factor } }
}

fn throttled(run: &RunValues<'_>) -> Option<ByRank> {
    let devices = run.devices.iter().take(run.most_ranks());
    let is_throttled = |reasons| f64::from(u8::from(!throttle::names(reasons).is_empty()));
    let reasons =
        devices.filter_map(|(rank, sample)| Some((*rank, sample.get(DeviceFigure::ThrottleReasons)?)));
    Some(reasons.map(|(rank, reasons)| (rank, is_throttled(reasons))).collect())
}
