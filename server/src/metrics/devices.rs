//! What the ranks' devices say (`paceline_device_*`), as far as each has it.

use prometheus::{GaugeVec, Opts};
use wire::device::{DeviceFigure, throttle};

use super::Families;
use super::ranks::RankGauge;
use crate::state::run::Run;

/// A gauge for each figure, in the unit of its name, and what a figure is multiplied by to get there.
const FIGURES: [(DeviceFigure, f64, &str, &str); 17] = [
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
    (DeviceFigure::MemoryTotalBytes, 1.0, "paceline_device_memory_bytes", "Memory of the rank's device."),
    (DeviceFigure::PowerMilliwatts, 1e-3, "paceline_device_power_watts", "Power the rank's device draws."),
    (
        DeviceFigure::PowerLimitMilliwatts,
        1e-3,
        "paceline_device_power_limit_watts",
        "Power the rank's device may draw.",
    ),
    (
        DeviceFigure::SmClockMegahertz,
        1e6,
        "paceline_device_sm_clock_hertz",
        "Clock of the multiprocessors of the rank's device.",
    ),
    (
        DeviceFigure::MemoryClockMegahertz,
        1e6,
        "paceline_device_memory_clock_hertz",
        "Clock of the memory of the rank's device.",
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
        "Share of time in which a multiprocessor of the rank's device had work, the mean over all.",
    ),
    (
        DeviceFigure::TensorActivityPermille,
        1e-3,
        "paceline_device_tensor_activity_ratio",
        "Share of time in which tensor cores of the rank's device worked.",
    ),
    (
        DeviceFigure::DramActivityPermille,
        1e-3,
        "paceline_device_dram_activity_ratio",
        "Share of the memory bandwidth of the rank's device in use.",
    ),
    (
        DeviceFigure::ClockErrorBoundNanoseconds,
        1e-9,
        "paceline_device_clock_error_bound_seconds",
        "How far times taken on the rank's device may be off on its host's clock.",
    ),
    (
        DeviceFigure::NvlinkSentMebibytesPerSecond,
        1_048_576.0,
        "paceline_device_nvlink_sent_bytes_per_second",
        "Sent over all NVLinks of the rank's device.",
    ),
    (
        DeviceFigure::NvlinkReceivedMebibytesPerSecond,
        1_048_576.0,
        "paceline_device_nvlink_received_bytes_per_second",
        "Received over all NVLinks of the rank's device.",
    ),
    (
        DeviceFigure::XidErrors,
        1.0,
        "paceline_device_xid_errors",
        "Critical errors (Xid) of the rank's device since it is looked at.",
    ),
    (
        DeviceFigure::LastXid,
        1.0,
        "paceline_device_last_xid",
        "The number of the last critical error (Xid) of the rank's device.",
    ),
];

/// Gauges by run and rank.
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
                "1 where the rank's device says that it lowered its clocks while it was busy, else 0.",
            ),
        }
    }

    pub(super) fn observe(&self, id: &str, run: &Run, most: usize) {
        let all = |figure: DeviceFigure| {
            let looks = run.devices().filter_map(|(rank, devices)| Some((rank, devices.newest()?)));
            let of = looks.take(most).filter_map(move |(rank, sample)| Some((rank, sample.get(figure)?)));
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
