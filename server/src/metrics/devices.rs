//! The metrics of the ranks' devices (`paceline_device_*`), for the figures that each device reports.

use prometheus::{GaugeVec, Opts};
use wire::device::{DeviceFigure, DeviceSample, throttle};

use super::Families;
use super::ranks::RankGauge;

/// The gauges of devices: the figure, the factor that converts it to the gauge's unit, the gauge's name and its help.
const FIGURES: [(DeviceFigure, f64, &str, &str); 23] = [
    (
        DeviceFigure::UtilizationPercent,
        1e-2,
        "paceline_device_utilization_ratio",
        "Share of the last second in which some kernel ran on the rank's device.",
    ),
    (
        DeviceFigure::MemoryUsedBytes,
        1.0,
        "paceline_device_memory_used_bytes",
        "Memory in use on the rank's device.",
    ),
    (
        DeviceFigure::MemoryTotalBytes,
        1.0,
        "paceline_device_memory_bytes",
        "Total memory of the rank's device.",
    ),
    (DeviceFigure::PowerMilliwatts, 1e-3, "paceline_device_power_watts", "Power drawn by the rank's device."),
    (
        DeviceFigure::PowerLimitMilliwatts,
        1e-3,
        "paceline_device_power_limit_watts",
        "Power limit of the rank's device.",
    ),
    (
        DeviceFigure::SmClockMegahertz,
        1e6,
        "paceline_device_sm_clock_hertz",
        "Clock of the streaming multiprocessors (SM) of the rank's device.",
    ),
    (
        DeviceFigure::MemoryClockMegahertz,
        1e6,
        "paceline_device_memory_clock_hertz",
        "Memory clock of the rank's device.",
    ),
    (
        DeviceFigure::TemperatureCelsius,
        1.0,
        "paceline_device_temperature_celsius",
        "Temperature of the rank's device.",
    ),
    (
        DeviceFigure::EccUncorrectedErrors,
        1.0,
        "paceline_device_ecc_uncorrected_errors",
        "Uncorrected memory errors of the rank's device since its driver was loaded.",
    ),
    (
        DeviceFigure::SmActivityPermille,
        1e-3,
        "paceline_device_sm_activity_ratio",
        "Share of time in which a streaming multiprocessor (SM) of the rank's device had work, mean over all SMs.",
    ),
    (
        DeviceFigure::TensorActivityPermille,
        1e-3,
        "paceline_device_tensor_activity_ratio",
        "Share of time in which the tensor cores of the rank's device worked.",
    ),
    (
        DeviceFigure::DramActivityPermille,
        1e-3,
        "paceline_device_dram_activity_ratio",
        "Share of the memory bandwidth of the rank's device that is in use.",
    ),
    (
        DeviceFigure::ClockErrorBoundNanoseconds,
        1e-9,
        "paceline_device_clock_error_bound_seconds",
        "Error bound of times of the rank's device on the clock of its host.",
    ),
    (
        DeviceFigure::NvlinkSentMebibytesPerSecond,
        1_048_576.0,
        "paceline_device_nvlink_sent_bytes_per_second",
        "Bytes sent per second over all NVLinks of the rank's device.",
    ),
    (
        DeviceFigure::NvlinkReceivedMebibytesPerSecond,
        1_048_576.0,
        "paceline_device_nvlink_received_bytes_per_second",
        "Bytes received per second over all NVLinks of the rank's device.",
    ),
    (
        DeviceFigure::XidErrors,
        1.0,
        "paceline_device_xid_errors",
        "Critical errors (Xid) of the rank's device since sampling began.",
    ),
    (
        DeviceFigure::LastXid,
        1.0,
        "paceline_device_last_xid",
        "Number (Xid) of the last critical error of the rank's device.",
    ),
    (
        DeviceFigure::AllocatedBytes,
        1.0,
        "paceline_device_memory_allocated_bytes",
        "Memory in use by tensors on the rank's device, as PyTorch's allocator counts it.",
    ),
    (
        DeviceFigure::AllocatedPeakBytes,
        1.0,
        "paceline_device_memory_allocated_peak_bytes",
        "Largest memory in use by tensors on the rank's device, since PyTorch's peak statistics were last reset.",
    ),
    (
        DeviceFigure::ReservedBytes,
        1.0,
        "paceline_device_memory_reserved_bytes",
        "Memory that PyTorch's allocator holds on the rank's device, in use or cached.",
    ),
    (
        DeviceFigure::InactiveSplitBytes,
        1.0,
        "paceline_device_memory_inactive_split_bytes",
        "Cached memory in split blocks, which PyTorch's allocator cannot give back to the rank's device (fragmentation).",
    ),
    (
        DeviceFigure::AllocationRetries,
        1.0,
        "paceline_device_allocation_retries",
        "Times that PyTorch's allocator ran out of memory on the rank's device and emptied its cache to try again.",
    ),
    (
        DeviceFigure::OutOfMemoryErrors,
        1.0,
        "paceline_device_out_of_memory_errors",
        "Out-of-memory errors that PyTorch's allocator raised on the rank's device.",
    ),
];

/// The gauges of devices, by run and rank.
#[derive(Clone)]
pub(super) struct DeviceMetrics {
    figures: Vec<(DeviceFigure, f64, RankGauge)>,
    throttled: RankGauge,
}

impl DeviceMetrics {
    pub(super) fn new(families: &mut Families) -> Self {
        let mut gauge = |name: &str, help: &str| {
            let gauge = GaugeVec::new(Opts::new(name, help), &["run", "rank"]);
            RankGauge::new(families.add(gauge.expect("the name and labels are valid")))
        };
        Self {
            figures: FIGURES.map(|(figure, unit, name, help)| (figure, unit, gauge(name, help))).into(),
            throttled: gauge(
                "paceline_device_throttled",
                "1 if the rank's device reports that it lowered its clocks while it was busy, 0 if not.",
            ),
        }
    }

    /// Sets the gauges from the newest sample of each device, by rank.
    pub(super) fn observe(&self, id: &str, samples: &[(usize, &DeviceSample)]) {
        let all = |figure: DeviceFigure| {
            let of = samples.iter().filter_map(move |(rank, sample)| Some((*rank, sample.get(figure)?)));
            of.collect::<Vec<_>>()
        };
        for (figure, unit, gauge) in &self.figures {
            let values = all(*figure).into_iter().map(|(rank, value)| (rank, value as f64 * unit));
            gauge.set(id, values);
        }
        let throttled = all(DeviceFigure::ThrottleReasons).into_iter();
        let is_slowed = |reasons| f64::from(u8::from(!throttle::names(reasons).is_empty()));
        self.throttled.set(id, throttled.map(|(rank, reasons)| (rank, is_slowed(reasons))));
    }

    pub(super) fn gauges(&self) -> impl Iterator<Item = &RankGauge> {
        self.figures.iter().map(|(_, _, gauge)| gauge).chain([&self.throttled])
    }
}
